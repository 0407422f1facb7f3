// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include "base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#define SITE_LINES     10
#define SITE_WINDOW_NS (10 * NS_PER_S)
#define MAX_MODULES    32

static const char *const level_names[] = {"error", "warning", "info", "debug"};

// Written by log_configure before threads start; read by all.
static enum log_level default_level = LOG_LEVEL_INFO;
static struct {
    char name[16];
    enum log_level level;
} modules[MAX_MODULES];
static size_t n_modules;

static int log_fd = STDERR_FILENO;
static enum { STYLE_STDERR, STYLE_FILE, STYLE_SYSLOG } style;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int parse_level(const char *s, size_t len, enum log_level *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(level_names); i++) {
        if (strlen(level_names[i]) == len && !memcmp(level_names[i], s, len)) {
            *ret = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

static int read_spec(const char *spec, bool apply)
{
    while (*spec) {
        size_t len = strcspn(spec, ",");
        const char *eq = memchr(spec, '=', len);
        enum log_level level;

        if (!eq) {
            if (parse_level(spec, len, &level) < 0)
                return -EINVAL;
            if (apply)
                default_level = level;
        } else {
            size_t name_len = (size_t)(eq - spec);

            if (parse_level(eq + 1, len - name_len - 1, &level) < 0 || n_modules == MAX_MODULES ||
                name_len >= sizeof(modules[0].name))
                return -EINVAL;
            if (apply) {
                memcpy(modules[n_modules].name, spec, name_len);
                modules[n_modules].name[name_len] = 0;
                modules[n_modules++].level = level;
            }
        }
        spec += len + (spec[len] == ',');
    }
    return 0;
}

int log_configure(const char *spec)
{
    int rc = read_spec(spec, false);

    return rc < 0 ? rc : read_spec(spec, true);
}

bool log_spec_valid(const char *spec)
{
    return read_spec(spec, false) == 0;
}

int log_open_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);

    if (fd < 0)
        return -errno;
    log_use_fd(fd);
    return 0;
}

void log_use_fd(int fd)
{
    log_fd = fd;
    style = STYLE_FILE;
}

int log_open_syslog(const char *name)
{
    if (access("/dev/log", W_OK) < 0)
        return -errno;
    openlog(name, LOG_PID, LOG_DAEMON);
    style = STYLE_SYSLOG;
    return 0;
}

bool log_enabled(enum log_level level, const char *module)
{
    // what was said last counts
    for (size_t i = n_modules; i > 0; i--)
        if (!strcmp(modules[i - 1].name, module))
            return level <= modules[i - 1].level;
    return level <= default_level;
}

// Whether this line may go out; *ret_suppressed tells how many before it did not.
static bool site_allows_locked(struct log_site *site, unsigned *ret_suppressed)
{
    uint64_t now = clock_monotonic_ns();

    if (site->window_start_ns == 0 || now - site->window_start_ns > SITE_WINDOW_NS) {
        site->window_start_ns = now;
        site->lines = 0;
    }
    if (site->lines >= SITE_LINES) {
        site->suppressed++;
        return false;
    }
    site->lines++;
    *ret_suppressed = site->suppressed;
    site->suppressed = 0;
    return true;
}

void log_write(struct log_site *site, enum log_level level, const char *module, const char *fmt,
               ...)
{
    static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
    char line[2048];
    unsigned suppressed = 0;
    size_t n = 0;
    va_list args;
    bool go;

    pthread_mutex_lock(&lock);
    go = level == LOG_LEVEL_DEBUG || site_allows_locked(site, &suppressed);
    pthread_mutex_unlock(&lock);
    if (!go)
        return;

    if (style == STYLE_FILE) {
        char stamp[25];

        clock_format_iso8601(clock_wall_s(), stamp);
        n += (size_t)snprintf(line, sizeof(line), "%.19sZ ", stamp);
    } else if (style == STYLE_STDERR && getenv("JOURNAL_STREAM")) {
        n += (size_t)snprintf(line, sizeof(line), "<%d>", priority[level]);
    }
    n += (size_t)snprintf(line + n, sizeof(line) - n, "%s %s: ", level_names[level], module);
    va_start(args, fmt);
    n += (size_t)vsnprintf(line + n, sizeof(line) - n, fmt, args);
    va_end(args);
    n = MIN(n, sizeof(line) - 64);
    // bytes from outside must not break the line
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 127)
            line[i] = '?';
    if (suppressed)
        n += (size_t)snprintf(line + n, sizeof(line) - n, " (%u like it left out)", suppressed);
    if (style == STYLE_SYSLOG) {
        syslog(priority[level], "%.*s", (int)n, line);
        return;
    }
    line[n++] = '\n';
    if (write(log_fd, line, n) < 0) {
        // nowhere to tell
    }
}
