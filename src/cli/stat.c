// SPDX-License-Identifier: Apache-2.0
// os2g stat: all that the store says about one object.
#include "cli/commands.h"

#include "base/clock.h"
#include "cli/session.h"

#include <stdio.h>
#include <stdlib.h>

static void show(void *arg, const struct s3_object_info *info)
{
    const char *key = arg;
    char when[30];

    clock_format_http_date(info->mtime_s, when);
    printf("key            %s\nsize           %lu\nmodified       %s\netag           %s\n"
           "storage class  %s\ncontent type   %s\n",
           key, info->size, when, info->etag,
           *info->storage_class ? info->storage_class : "STANDARD", info->content_type);
    for (size_t i = 0; i < info->n_metadata; i++)
        printf("metadata       %s: %s\n", info->metadata[i].name, info->metadata[i].value);
}

static int stat_object(struct export_options *o, const char *source)
{
    char text[S3_ERROR_TEXT], *key;
    struct session session;
    int rc = session_begin(&session, &stat_command, o, source, SESSION_OBJECT, &key);

    if (rc < 0)
        return rc;
    rc = session_head(&session, key, show, key, text);
    if (rc < 0)
        session_fail(&stat_command, text, rc);
    session_close(&session);
    free(key);
    return rc;
}

static int run(int argc, char **argv)
{
    struct export_options export;
    struct cli_arguments words;
    int rc;

    export_options_init(&export);
    cli_parse(&stat_command, argc, argv, NULL, &export, &words);
    if (words.n != 1) {
        cli_fail(&stat_command, "See: os2g stat --help", "name one object");
        rc = EXIT_USAGE;
    } else {
        rc = stat_object(&export, words.words[0]) < 0 || fflush(stdout) ? 1 : 0;
    }
    free(words.words);
    export_options_fini(&export);
    return rc;
}

const struct cli_command stat_command = {
    .name = "stat",
    .synopsis = "s3://BUCKET/KEY",
    .summary = "Shows an object's size, date, ETag, class, type and metadata",
    .export_groups = SESSION_EXPORT_GROUPS,
    .run = run,
};
