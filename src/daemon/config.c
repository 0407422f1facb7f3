// SPDX-License-Identifier: Apache-2.0
#include "daemon/config.h"

#include "base/log.h"
#include "base/text.h"

#include <ctype.h>
#include <fcntl.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_MAX  (1 * MIB)
#define EXPORTS_MAX 1024

struct reading {
    struct config *config;
    uid_t uid;
    gid_t gid;
    char *error;
};

static bool name_ok(const char *name)
{
    size_t n = 0;

    for (; name[n]; n++)
        if (!isalnum((unsigned char)name[n]) && !strchr("-_.", name[n]))
            return false;
    return n > 0 && n < 64;
}

static struct config_export *find_export(struct config *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->exports[i].name, name))
            return &c->exports[i];
    return NULL;
}

static struct config_export *take_export(struct reading *r, const char *name)
{
    struct config *c = r->config;
    struct config_export *e = find_export(c, name);

    if (e)
        return e;
    if (!name_ok(name)) {
        r->error =
            xasprintf("export '%s': a name is up to 63 letters, digits, '-', '_' and '.'", name);
        return NULL;
    }
    if (c->n == EXPORTS_MAX) {
        r->error = xasprintf("more than %d exports", EXPORTS_MAX);
        return NULL;
    }
    c->exports = xrealloc(c->exports, (c->n + 1) * sizeof(*c->exports));
    e = &c->exports[c->n++];
    e->name = xstrdup(name);
    e->options = xmalloc(sizeof(*e->options));
    export_options_init(e->options);
    export_options_set_owner(e->options, r->uid, r->gid);
    return e;
}

static int set_daemon(struct reading *r, const char *name, const char *value)
{
    static const char *const names[] = {"metrics", "log-level", "log-directory", NULL};
    struct config *c = r->config;
    const char *near;
    char **field;

    if (!strcmp(name, "metrics"))
        field = &c->metrics;
    else if (!strcmp(name, "log-level"))
        field = &c->log_level;
    else if (!strcmp(name, "log-directory"))
        field = &c->log_directory;
    else {
        near = text_nearest(name, names);
        r->error = near ? xasprintf("[daemon] has no '%s'; did you mean '%s'?", name, near)
                        : xasprintf("[daemon] has no '%s'; it takes metrics, log-level and "
                                    "log-directory",
                                    name);
        return -EINVAL;
    }
    if (field == &c->log_level && !log_spec_valid(value)) {
        r->error =
            xasprintf("log-level: '%s' will not do; write error, warning, info or debug", value);
        return -EINVAL;
    }
    free(*field);
    *field = xstrdup(value);
    return 0;
}

static int set_mount(struct reading *r, struct config_export *e, const char *value)
{
    if (value[0] != '/') {
        r->error = xasprintf("mount: '%s' is not an absolute path", value);
        return -EINVAL;
    }
    for (size_t i = 0; i < r->config->n; i++) {
        const char *other = r->config->exports[i].options->directory;

        if (&r->config->exports[i] != e && other && !strcmp(other, value)) {
            r->error =
                xasprintf("%s is the place of export '%s', too", value, r->config->exports[i].name);
            return -EINVAL;
        }
    }
    export_options_set_directory(e->options, value);
    return 0;
}

static int set_export(struct reading *r, const char *export_name, const char *name,
                      const char *value)
{
    struct config_export *e = take_export(r, export_name);

    if (!e)
        return -EINVAL;
    // else the later of two sections of one name would quietly take the place of the earlier
    if ((!strcmp(name, "source") && e->options->source) ||
        (!strcmp(name, "mount") && e->options->directory)) {
        r->error =
            xasprintf("export '%s' has a %s already; is its name used twice?", export_name, name);
        return -EINVAL;
    }
    if (!strcmp(name, "source"))
        return export_options_set_source(e->options, value, &r->error);
    if (!strcmp(name, "mount"))
        return set_mount(r, e, value);
    if (!strcmp(name, "socket") && value[0] != '/' && strcmp(value, "none") != 0) {
        r->error = xasprintf("socket: '%s' is not an absolute path", value);
        return -EINVAL;
    }
    if (!strcmp(name, "log-directory")) {
        r->error = xstrdup("log-directory belongs into [daemon]");
        return -EINVAL;
    }
    return export_options_set(e->options, name, value, &r->error);
}

// inih's call-back: 0 ends with this line's number.
static int on_line(void *arg, const char *section, const char *name, const char *value)
{
    struct reading *r = arg;
    int rc;

    if (r->error)
        return 0;
    if (!value || !*name) {
        r->error = xstrdup("write name = value");
        return 0;
    }
    if (!strcmp(section, "daemon")) {
        rc = set_daemon(r, name, value);
    } else if (text_starts_with(section, "export ")) {
        const char *export_name = section + strlen("export ");

        rc = set_export(r, export_name + strspn(export_name, " \t"), name, value);
    } else {
        r->error = xasprintf("[%s]: there are [daemon] and [export NAME]", section);
        rc = -EINVAL;
    }
    return rc == 0;
}

static int complete_export(struct config *c, struct config_export *e, char **ret_why)
{
    struct export_options *o = e->options;
    int rc;

    if (!o->directory && !export_options_offers_socket(o)) {
        *ret_why = xstrdup("it needs a line mount = DIRECTORY or socket = PATH");
        return -EINVAL;
    }
    if (!o->source) {
        *ret_why = xstrdup("it needs a line source = s3://bucket");
        return -EINVAL;
    }
    rc = export_options_default_socket(o, NULL, ret_why);
    if (rc == 0)
        rc = export_options_complete(o, ret_why);
    if (rc == 0 && c->log_level && !o->log_level)
        rc = export_options_set(o, "log-level", c->log_level, ret_why);
    for (struct config_export *other = c->exports; rc == 0 && other < e; other++) {
        if (export_options_offers_socket(o) && !strcmp(o->socket, other->options->socket)) {
            *ret_why = xasprintf("%s is the socket of export '%s', too", o->socket, other->name);
            rc = -EINVAL;
        }
    }
    return rc;
}

static int complete(struct config *c, char **ret_error)
{
    if (!c->n) {
        *ret_error = xstrdup("there is no [export NAME] in it");
        return -EINVAL;
    }
    for (size_t i = 0; i < c->n; i++) {
        char *why = NULL;
        int rc = complete_export(c, &c->exports[i], &why);

        if (rc < 0) {
            *ret_error = xasprintf("export '%s': %s", c->exports[i].name, why);
            free(why);
            return rc;
        }
    }
    return 0;
}

int config_parse(struct config *ret, const char *text, uid_t uid, gid_t gid, char **ret_error)
{
    struct config c = {0};
    struct reading r = {.config = &c, .uid = uid, .gid = gid};
    int line = ini_parse_string(text, on_line, &r), rc;

    if (line != 0 || r.error) {
        *ret_error = xasprintf("line %d: %s", MAX(line, 1),
                               r.error ? r.error : "write [section] or name = value");
        rc = -EINVAL;
    } else {
        rc = complete(&c, ret_error);
    }
    free(r.error);
    if (rc < 0)
        config_fini(&c);
    else
        *ret = c;
    return rc;
}

static int read_file(const char *path, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    ssize_t n;

    if (fd < 0)
        return -errno;
    do {
        buf_reserve(out, 16 * KIB);
        n = read(fd, out->data + out->len, 16 * KIB);
        if (n > 0)
            out->len += (size_t)n;
    } while (n > 0 && out->len <= CONFIG_MAX);
    if (n < 0)
        rc = -errno;
    else if (out->len > CONFIG_MAX)
        rc = -EFBIG;
    else if (memchr(out->data, 0, out->len))
        rc = -EINVAL;
    out->data[out->len] = 0;
    close(fd);
    return rc;
}

int config_read(struct config *ret, const char *path, uid_t uid, gid_t gid, char **ret_error)
{
    struct buf text = {0};
    char *why = NULL;
    int rc = read_file(path, &text);

    if (rc < 0)
        why = xstrdup(rc == -EINVAL ? "it is not a text file" : strerror(-rc));
    else
        rc = config_parse(ret, buf_str(&text), uid, gid, &why);
    if (rc < 0)
        *ret_error = xasprintf("%s: %s", path, why);
    free(why);
    buf_free(&text);
    return rc;
}

void config_fini(struct config *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->exports[i].name);
        if (c->exports[i].options) {
            export_options_fini(c->exports[i].options);
            free(c->exports[i].options);
        }
    }
    free(c->exports);
    free(c->metrics);
    free(c->log_level);
    free(c->log_directory);
    *c = (struct config){0};
}
