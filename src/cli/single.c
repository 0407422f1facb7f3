// SPDX-License-Identifier: Apache-2.0
#include "cli/single.h"

#include "base/log.h"
#include "cli/fstab.h"
#include "cli/options.h"
#include "daemon/supervisor.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void single_init(struct single *s)
{
    *s = (struct single){.ready_fd = STDOUT_FILENO};
    export_options_init(&s->options);
    export_options_set_owner(&s->options, getuid(), getgid());
    s->given = s->options.given.len;
}

void single_fini(struct single *s)
{
    export_options_fini(&s->options);
    buf_free(&s->words);
}

bool single_was_meant(const struct single *s)
{
    return s->source || s->words.len || s->linger_ns || s->ready_fd != STDOUT_FILENO ||
           s->options.given.len > s->given;
}

// One line; to a pipe of somebody who waits for it. A program is told the errno before the
// sentence.
static void tell(struct single *s, const char *line, int reason)
{
    char *text = reason && s->ready_fd != STDOUT_FILENO ? xasprintf("error %d %s\n", reason, line)
                                                        : xasprintf("%s\n", line);

    if (s->ready_fd >= 0 && write(s->ready_fd, text, strlen(text)) < 0)
        log_warning("os2gd", "nobody reads whether it is ready");
    if (s->ready_fd > STDERR_FILENO)
        close(s->ready_fd);
    s->ready_fd = -1;
    free(text);
}

static void on_settled(void *arg, const struct export_options *o, const char *error, int reason,
                       bool first)
{
    if (error)
        log_error("os2gd", "%s", error);
    tell(arg, error ? error : "ready", reason);
}

static int apply_words(struct single *s, char **ret_error)
{
    const char *word = buf_str(&s->words), *end = word + s->words.len;

    for (; word < end; word += strlen(word) + 1) {
        int rc = fstab_options_apply(&s->options, word, false, ret_error);

        if (rc < 0)
            return rc;
    }
    return 0;
}

static int prepare(struct single *s, char **ret_error)
{
    struct export_options *o = &s->options;
    int rc = apply_words(s, ret_error);

    if (rc == 0)
        rc = export_options_set_source(o, s->source, ret_error);
    if (rc == 0)
        rc = export_options_complete(o, ret_error);
    if (rc == 0 && !export_options_offers_socket(o)) {
        *ret_error = xstrdup("say where hosts are to connect: --socket PATH");
        rc = -EINVAL;
    }
    if (rc == 0 && o->log_directory) {
        *ret_error = xstrdup("log-directory: it logs to standard error");
        rc = -EINVAL;
    }
    if (rc == 0 && o->log_level)
        log_configure(o->log_level);
    return rc;
}

// What who started us has left open is nobody's business: it may be waiting for its end.
static void close_others(int keep)
{
    if (keep <= STDERR_FILENO) {
        close_range(STDERR_FILENO + 1, ~0U, 0);
        return;
    }
    if (keep > STDERR_FILENO + 1)
        close_range(STDERR_FILENO + 1, (unsigned)keep - 1, 0);
    close_range((unsigned)keep + 1, ~0U, 0);
    fcntl(keep, F_SETFD, FD_CLOEXEC);
}

static int supervise(struct single *s)
{
    const struct supervisor_config config = {
        .log_style = "stderr",
        .linger_ns = s->linger_ns,
        .settled = on_settled,
        .arg = s,
    };
    struct export_options *o = xmalloc(sizeof(*o));
    struct supervisor *supervisor;
    int rc = supervisor_new(&supervisor, &config);

    if (rc < 0) {
        tell(s, strerror(-rc), -rc);
        free(o);
        return 1;
    }
    *o = s->options;
    s->options = (struct export_options){0};
    supervisor_add(supervisor, o);
    rc = supervisor_run(supervisor);
    supervisor_free(supervisor);
    return rc;
}

int single_run(struct single *s)
{
    char *error = NULL;
    int rc;

    close_others(s->ready_fd);
    if (!s->source) {
        error = xstrdup("say which bucket: --export s3://bucket/prefix");
        rc = -EINVAL;
    } else {
        rc = prepare(s, &error);
    }
    if (rc < 0) {
        log_error("os2gd", "%s", error);
        tell(s, error, -rc);
        free(error);
        return EXIT_USAGE;
    }
    return supervise(s);
}
