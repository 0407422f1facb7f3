// SPDX-License-Identifier: Apache-2.0
// os2g cat: objects to standard output, fetched in parallel and written in order.
#include "cli/commands.h"

#include "base/text.h"
#include "cli/fetch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_object(void *arg, struct fetch_object *o)
{
    return 0;
}

static int write_out(void *arg, struct fetch_object *o, uint64_t offset, const void *data,
                     size_t len)
{
    const char *p = data;

    while (len) {
        ssize_t n = write(STDOUT_FILENO, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static void object_end(void *arg, struct fetch_object *o, int error, const char *text)
{
    if (error && error != -EPIPE)
        cli_fail(&cat_command, NULL, "%s: %s", o->key, *text ? text : strerror(-error));
}

// Size and version of what is to be read, so that its parts are of one version.
static void learn(void *arg, const struct s3_object_info *info)
{
    struct fetch_object *o = arg;

    o->size = info->size;
    o->etag = xstrdup(info->etag);
}

// "FROM-", "FROM-TO" (bytes, both included) or "-LAST"
static int take_range(struct fetch_object *o, const char *range)
{
    char *dash = strchr(range, '-'), *from;
    uint64_t first, last = o->size ? o->size - 1 : 0;
    int rc = -EINVAL;

    if (!dash)
        return -EINVAL;
    from = xstrndup(range, (size_t)(dash - range));
    if (!*from) {
        if (text_parse_size(dash + 1, &first) == 0) {
            o->offset = o->size - MIN(first, o->size);
            rc = 0;
        }
    } else if (text_parse_size(from, &first) == 0 &&
               (!dash[1] || text_parse_size(dash + 1, &last) == 0) && first <= last + 1) {
        o->size = MIN(o->size, last + 1);
        o->offset = MIN(first, o->size);
        rc = 0;
    }
    free(from);
    o->part = true;
    return rc;
}

struct cat {
    const char *range; // NULL: all
};

static int set_range(void *target, const char *value, char **ret_error)
{
    ((struct cat *)target)->range = value;
    return 0;
}

static int cat(const struct cat *cat, struct session *s, const char *key)
{
    static const struct fetch_config config = {
        .parallel = 8, .ordered = true, .open = open_object, .write = write_out, .end = object_end};
    struct fetch_object object = {.key = (char *)key};
    char text[S3_ERROR_TEXT];
    int rc = session_head(s, key, learn, &object, text);

    if (rc < 0) {
        session_fail(&cat_command, text, rc);
    } else if (cat->range && take_range(&object, cat->range) < 0) {
        rc = -EINVAL;
        session_fail(&cat_command, "--range takes FROM-TO, FROM- or -LAST, in bytes", rc);
    } else {
        rc = fetch_run(s, &config, &object, 1);
    }
    free(object.etag);
    return rc;
}

static int run(int argc, char **argv)
{
    struct export_options export;
    struct cli_arguments words;
    struct session session;
    struct cat options = {0};
    char *key;
    int rc;

    export_options_init(&export);
    cli_parse(&cat_command, argc, argv, &options, &export, &words);
    if (words.n != 1) {
        cli_fail(&cat_command, "See: os2g cat --help", "name one object");
        rc = EXIT_USAGE;
    } else if (session_begin(&session, &cat_command, &export, words.words[0],
                             SESSION_OBJECT | SESSION_SHARED, &key) < 0) {
        rc = 1;
    } else {
        rc = cat(&options, &session, key) < 0 ? 1 : 0;
        session_close(&session);
        free(key);
    }
    free(words.words);
    export_options_fini(&export);
    return rc;
}

static const struct cli_option option_table[] = {
    {"range", 0, "FROM-TO", "only these bytes, both included; FROM- or -LAST too", set_range},
    {NULL},
};

const struct cli_command cat_command = {
    .name = "cat",
    .synopsis = "s3://BUCKET/KEY",
    .summary = "Writes an object to standard output",
    .options = option_table,
    .export_groups = SESSION_EXPORT_GROUPS,
    .run = run,
};
