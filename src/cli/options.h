// SPDX-License-Identifier: Apache-2.0
// Command lines of os2g and os2gd: options of a command and of exports, --help made from the same
// tables, and a word about what was probably meant.
#pragma once

#include "daemon/export_options.h"

#define EXIT_USAGE 2

struct cli_option {
    const char *name;  // "lazy"
    char letter;       // 'z', or 0
    const char *value; // what its value is called in help; NULL: a switch
    const char *help;
    // value: NULL for a switch. -EINVAL with a sentence in *ret_error.
    int (*set)(void *target, const char *value, char **ret_error);
    bool optional; // the value may be left out (NULL); it is given as --name=VALUE only
};

struct cli_command {
    const char *name;                 // "mount", or "os2gd" of another program
    bool program;                     // name is the program's, not a word behind os2g
    const char *synopsis;             // "s3://bucket[/prefix] DIR", behind the name and [options]
    const char *summary;              // one line, without a dot
    const char *text;                 // more for its --help, or NULL
    const struct cli_option *options; // ends with a NULL name; NULL: none
    unsigned export_groups; // enum export_option_group, of the options of exports it takes
    int (*run)(int argc, char **argv); // argv[0] is its name; the exit status
};

struct cli_arguments {
    char **words; // what is no option, in order; ends with NULL
    size_t n;
};

// Reads argv[1...] of command c: its own options into target, those of exports into o (NULL when
// it takes none). --help prints and exits with 0; what is wrong is told and exits with EXIT_USAGE.
// words point into argv; free(ret->words).
void cli_parse(const struct cli_command *c, int argc, char **argv, void *target,
               struct export_options *o, struct cli_arguments *ret);

void cli_help(const struct cli_command *c);

// "os2g mount: sentence" on stderr, with "hint" below it unless NULL; returns the exit status.
int cli_fail(const struct cli_command *c, const char *hint, const char *fmt, ...) PRINTF_LIKE(3, 4);
