// SPDX-License-Identifier: Apache-2.0
// os2g ls: what is in a bucket.
#include "cli/commands.h"

#include "cli/progress.h"
#include "cli/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct ls {
    bool human, recursive, summarize;
    size_t prefix_len; // of what was asked for, cut off the names unless recursive
    uint64_t objects, bytes;
};

static int show_entry(void *arg, const struct s3_list_entry *e)
{
    struct ls *ls = arg;
    size_t skip = ls->recursive ? 0 : MIN(ls->prefix_len, e->key_len);
    char when[32], size[16];
    time_t t = (time_t)e->info.mtime_s;
    struct tm tm;

    if (e->is_prefix) {
        printf("%19s %12s ", "", "PRE");
    } else {
        localtime_r(&t, &tm);
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
        if (ls->human)
            progress_format_bytes(e->info.size, size);
        else
            snprintf(size, sizeof(size), "%lu", e->info.size);
        printf("%s %12s ", when, size);
        ls->objects++;
        ls->bytes += e->info.size;
    }
    fwrite(e->key + skip, 1, e->key_len - skip, stdout);
    putchar('\n');
    return ferror(stdout) ? -MAX(errno, 1) : 0;
}

static int set_recursive(void *target, const char *value, char **ret_error)
{
    ((struct ls *)target)->recursive = true;
    return 0;
}

static int set_human(void *target, const char *value, char **ret_error)
{
    ((struct ls *)target)->human = true;
    return 0;
}

static int set_summarize(void *target, const char *value, char **ret_error)
{
    ((struct ls *)target)->summarize = true;
    return 0;
}

// That the reader of a pipe has seen enough is no mistake of anybody.
static void complain_of_output(int error)
{
    if (error != EPIPE)
        cli_fail(&ls_command, NULL, "standard output: %s", strerror(error));
}

static int list(struct ls *ls, struct export_options *o, const char *source)
{
    char text[S3_ERROR_TEXT], *key;
    struct session session;
    const char *slash;
    int rc = session_begin(&session, &ls_command, o, source, 0, &key);

    if (rc < 0)
        return rc;
    slash = strrchr(key, '/');
    ls->prefix_len = slash ? (size_t)(slash + 1 - key) : 0;
    rc = session_list(&session, key, ls->recursive ? 0 : '/', show_entry, ls, text);
    if (ferror(stdout))
        complain_of_output(-rc);
    else if (rc < 0)
        session_fail(&ls_command, text, rc);
    session_close(&session);
    free(key);
    return rc;
}

static int run(int argc, char **argv)
{
    struct export_options export;
    struct cli_arguments words;
    struct ls ls = {0};
    int rc;

    export_options_init(&export);
    cli_parse(&ls_command, argc, argv, &ls, &export, &words);
    if (words.n != 1) {
        cli_fail(&ls_command, "See: os2g ls --help", "name one bucket or prefix");
        rc = EXIT_USAGE;
    } else {
        rc = list(&ls, &export, words.words[0]) < 0 ? 1 : 0;
        if (rc == 0 && ls.summarize)
            printf("%lu objects, %lu bytes\n", ls.objects, ls.bytes);
        if (rc == 0 && fflush(stdout)) {
            complain_of_output(errno);
            rc = 1;
        }
    }
    free(words.words);
    export_options_fini(&export);
    return rc;
}

static const struct cli_option options[] = {
    {"recursive", 'r', NULL, "everything below, no prefixes", set_recursive},
    {"human-readable", 'H', NULL, "sizes as KiB, MiB, ...", set_human},
    {"summarize", 0, NULL, "a last line with the number of objects and bytes", set_summarize},
    {NULL},
};

const struct cli_command ls_command = {
    .name = "ls",
    .synopsis = "s3://BUCKET[/PREFIX]",
    .summary = "Lists objects",
    .text = "Common prefixes, which look like directories, show as PRE. A prefix is taken as it "
            "is: s3://b/dir lists what begins with dir, s3://b/dir/ what is in it.",
    .options = options,
    .export_groups = SESSION_EXPORT_GROUPS,
    .run = run,
};
