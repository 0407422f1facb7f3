// SPDX-License-Identifier: Apache-2.0
// One value of an option: from text to its field.
#include "daemon/export_option_table.h"

#include "base/log.h"
#include "base/text.h"
#include "base/unix_address.h"

#include <ctype.h>
#include <grp.h>
#include <limits.h>
#include <math.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static int parse_switch(const char *value, bool *ret)
{
    static const char *const yes[] = {"yes", "true", "on", "1"};
    static const char *const no[] = {"no", "false", "off", "0"};

    if (!value) {
        *ret = true;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (!strcasecmp(value, yes[i])) {
            *ret = true;
            return 0;
        }
        if (!strcasecmp(value, no[i])) {
            *ret = false;
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_ttl(const char *value, uint64_t *ret)
{
    if (!strcmp(value, "minimal"))
        *ret = 0;
    else if (!strcmp(value, "indefinite"))
        *ret = UINT64_MAX;
    else
        return text_parse_duration(value, ret);
    return 0;
}

static int parse_mode(const char *value, uint32_t *ret)
{
    char *end;
    unsigned long mode;

    if (!isdigit((unsigned char)value[0]))
        return -EINVAL;
    mode = strtoul(value, &end, 8);
    if (*end || mode > 0777)
        return -EINVAL;
    *ret = (uint32_t)mode;
    return 0;
}

int export_option_parse_id(const char *value, bool group, uint32_t *ret)
{
    uint64_t id;

    if (text_parse_u64(value, &id) == 0) {
        // the last one means "leave as it is" to the kernel
        if (id >= UINT32_MAX)
            return -ERANGE;
        *ret = (uint32_t)id;
        return 0;
    }
    if (group) {
        const struct group *g = getgrnam(value);

        if (!g)
            return -ENOENT;
        *ret = g->gr_gid;
    } else {
        const struct passwd *p = getpwnam(value);

        if (!p)
            return -ENOENT;
        *ret = p->pw_uid;
    }
    return 0;
}

static int parse_gbps(const char *value, uint64_t *ret)
{
    char *end;
    double gbps = strtod(value, &end);

    if (end == value || *end || !isfinite(gbps) || gbps <= 0 || gbps > 1e6)
        return -EINVAL;
    *ret = (uint64_t)(gbps * 1e9 / 8);
    return 0;
}

static int parse_count(const char *value, unsigned *ret)
{
    uint64_t n;
    int rc = text_parse_u64(value, &n);

    if (rc < 0)
        return rc;
    if (n == 0 || n > INT_MAX)
        return -ERANGE;
    *ret = (unsigned)n;
    return 0;
}

static void set_string(char **field, const char *value)
{
    free(*field);
    *field = xstrdup(value);
}

static int set_path(char **field, const char *value, bool directory)
{
    char *path = realpath(value, NULL);
    struct stat st;
    int rc;

    if (!path)
        return -errno;
    if (access(path, directory ? W_OK | X_OK : R_OK) < 0 || stat(path, &st) < 0)
        rc = -errno;
    else if (directory && !S_ISDIR(st.st_mode))
        rc = -ENOTDIR;
    else if (!directory && S_ISDIR(st.st_mode))
        rc = -EISDIR;
    else
        rc = 0;
    if (rc < 0) {
        free(path);
        return rc;
    }
    free(*field);
    *field = path;
    return 0;
}

static void set_prefix(char **field, const char *value)
{
    while (*value == '/')
        value++;
    free(*field);
    *field = *value && !text_ends_with(value, "/") ? xasprintf("%s/", value) : xstrdup(value);
}

const char *export_option_hint(enum export_option_kind kind)
{
    switch (kind) {
    case SWITCH:
    case PATH_STYLE:
    case READ_ONLY:
        return "it is a switch: write it alone, or with yes or no";
    case SIZE:
        return "write a size such as 256M or 2G";
    case DURATION:
        return "write a time such as 30s or 2m";
    case TTL:
        return "write seconds, minimal or indefinite";
    case COUNT:
        return "write a whole number from 1 on";
    case MODE:
        return "write permissions in octal, such as 0644";
    case USER:
        return "write a user's name or number";
    case GROUP:
        return "write a group's name or number";
    case GBPS:
        return "write gigabits a second, such as 10 or 2.5";
    case LOG_SPEC:
        return "write error, warning, info or debug";
    case USERS:
        return "write users' names or numbers, separated by commas";
    case SOCKET:
        return "write a path of at most 107 bytes, or none";
    case GPU_FILES:
        return "write files, separated by commas";
    case TEXT:
    case FILE_PATH:
    case DIRECTORY:
    case PREFIX:
        break;
    }
    return "it needs a value";
}

// --- lists ---

// Absolute, and without links on the way, as far as it is there: it names the export to those who
// ask.
static char *socket_path(const char *value)
{
    const char *slash = strrchr(value, '/'), *name = slash ? slash + 1 : value;
    char *parent = !slash           ? xstrdup(".")
                   : slash == value ? xstrdup("/")
                                    : xstrndup(value, (size_t)(slash - value));
    char *absolute = realpath(parent, NULL), *path;

    if (absolute)
        path = xasprintf("%s/%s", strcmp(absolute, "/") ? absolute : "", name);
    else
        path = value[0] == '/' ? xstrdup(value) : NULL;
    free(parent);
    free(absolute);
    return path;
}

static int set_socket(char **field, const char *value, bool trusted)
{
    bool as_it_is = trusted || !strcmp(value, "none");
    char *path = as_it_is ? xstrdup(value) : socket_path(value);
    struct sockaddr_un address;

    if (!path)
        return -ENOENT;
    if (unix_address(&address, path) < 0) {
        free(path);
        return -ENAMETOOLONG;
    }
    free(*field);
    *field = path;
    return 0;
}

// Calls add for each word of a list; all or the first that fails.
static int each_word(const char *list, int (*add)(struct export_options *o, const char *word),
                     struct export_options *o)
{
    char *copy = xstrdup(list), *at = NULL;
    int rc = -EINVAL;

    for (char *word = strtok_r(copy, ",", &at); word; word = strtok_r(NULL, ",", &at)) {
        rc = add(o, word);
        if (rc < 0)
            break;
    }
    free(copy);
    return rc;
}

static int add_user(struct export_options *o, const char *word)
{
    uint32_t uid;
    int rc = export_option_parse_id(word, false, &uid);

    if (rc < 0)
        return rc;
    o->socket_allow = xrealloc(o->socket_allow, (o->n_socket_allow + 1) * sizeof(*o->socket_allow));
    o->socket_allow[o->n_socket_allow++] = uid;
    return 0;
}

static void add_gpu(struct export_options *o, dev_t dev, ino_t ino)
{
    o->gpu_memory = xrealloc(o->gpu_memory, (o->n_gpu_memory + 1) * sizeof(*o->gpu_memory));
    o->gpu_memory[o->n_gpu_memory++] = (struct region_file){.dev = dev, .ino = ino};
}

static int add_gpu_file(struct export_options *o, const char *word)
{
    struct stat st;

    if (stat(word, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    add_gpu(o, st.st_dev, st.st_ino);
    return 0;
}

// DEV:INO, of a process that could look at the file.
static int add_gpu_number(struct export_options *o, const char *word)
{
    const char *colon = strchr(word, ':');
    uint64_t dev, ino;
    char *first;
    int rc;

    if (!colon)
        return -EINVAL;
    first = xstrndup(word, (size_t)(colon - word));
    rc = text_parse_u64(first, &dev);
    free(first);
    if (rc == 0)
        rc = text_parse_u64(colon + 1, &ino);
    if (rc == 0)
        add_gpu(o, (dev_t)dev, (ino_t)ino);
    return rc;
}

int export_option_apply(struct export_options *o, const struct export_option *opt,
                        const char *value, bool trusted)
{
    void *field = (char *)o + opt->offset;
    bool on;
    int rc;

    if (opt->value && (!value || !*value))
        return -EINVAL;
    switch ((enum export_option_kind)opt->kind) {
    case SWITCH:
        return parse_switch(value, field);
    case READ_ONLY:
        return parse_switch(value, &on);
    case PATH_STYLE:
        rc = parse_switch(value, &on);
        if (rc == 0)
            *(enum s3_addressing *)field =
                on == (opt->name[0] == 'f') ? S3_ADDRESSING_PATH : S3_ADDRESSING_VIRTUAL;
        return rc;
    case TEXT:
        set_string(field, value);
        return 0;
    case LOG_SPEC:
        if (!log_spec_valid(value))
            return -EINVAL;
        set_string(field, value);
        return 0;
    case FILE_PATH:
    case DIRECTORY:
        if (!trusted)
            return set_path(field, value, opt->kind == DIRECTORY);
        set_string(field, value);
        return 0;
    case SOCKET:
        return set_socket(field, value, trusted);
    case USERS:
        return each_word(value, add_user, o);
    case GPU_FILES:
        return each_word(value, trusted ? add_gpu_number : add_gpu_file, o);
    case PREFIX:
        set_prefix(field, value);
        return 0;
    case SIZE:
        return text_parse_size(value, field);
    case DURATION:
        rc = text_parse_duration(value, field);
        return rc == 0 && *(uint64_t *)field == 0 ? -EINVAL : rc;
    case TTL:
        return parse_ttl(value, field);
    case COUNT:
        return parse_count(value, field);
    case MODE:
        return parse_mode(value, field);
    case USER:
        return export_option_parse_id(value, false, field);
    case GROUP:
        return export_option_parse_id(value, true, field);
    case GBPS:
        return parse_gbps(value, field);
    }
    return -EINVAL;
}
