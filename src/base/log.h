// SPDX-License-Identifier: Apache-2.0
// The log: one line per event on stderr (or the file given), "LEVEL module: text".
//
// Any thread may log. A line for a person says what to do. Modules below daemon/ log at debug,
// and at warning where something happened that the operator should know and nobody else can
// report. Each call site is limited to 10 lines in 10 seconds; what was left out is counted in
// the next line that gets through.
#pragma once

#include "base/base.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log_site {
    uint64_t window_start_ns;
    unsigned lines, suppressed;
};

// spec: a level ("info"), or "info,s3=debug,fs=debug". -EINVAL if it is neither.
int log_configure(const char *spec);
bool log_spec_valid(const char *spec);
// Appends to path from now on; 0 or -errno.
int log_open_file(const char *path);
// Writes to fd, a log file that another process has opened.
void log_use_fd(int fd);
// Writes to the system's log (/dev/log) as name from now on; 0 or -errno.
int log_open_syslog(const char *name);

bool log_enabled(enum log_level level, const char *module);
void log_write(struct log_site *site, enum log_level level, const char *module, const char *fmt,
               ...) PRINTF_LIKE(4, 5);

#define log_at(level, module, ...)                                                                 \
    do {                                                                                           \
        static struct log_site log_site_;                                                          \
        if (log_enabled(level, module))                                                            \
            log_write(&log_site_, level, module, __VA_ARGS__);                                     \
    } while (0)

#define log_error(module, ...)   log_at(LOG_LEVEL_ERROR, module, __VA_ARGS__)
#define log_warning(module, ...) log_at(LOG_LEVEL_WARNING, module, __VA_ARGS__)
#define log_info(module, ...)    log_at(LOG_LEVEL_INFO, module, __VA_ARGS__)
#define log_debug(module, ...)   log_at(LOG_LEVEL_DEBUG, module, __VA_ARGS__)
