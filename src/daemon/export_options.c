// SPDX-License-Identifier: Apache-2.0
#include "daemon/export_option_table.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "cache/cache.h"

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

#define DEFAULT_MEMORY       (512 * MIB)
#define DEFAULT_METADATA_TTL (60 * NS_PER_S)
#define DEFAULT_NEGATIVE_TTL (5 * NS_PER_S)
#define MEMORY_PER_LOOP      (16 * MIB)
#define MAX_THREADS          64
#define MAX_CONNECTIONS      4096
#define UNSET_TTL            (UINT64_MAX - 1)

void export_options_init(struct export_options *o)
{
    *o = (struct export_options){
        .file_mode = 0644,
        .dir_mode = 0755,
        .metadata_ttl_ns = DEFAULT_METADATA_TTL,
        .negative_ttl_ns = UNSET_TTL,
        .memory = DEFAULT_MEMORY,
    };
}

void export_options_set_owner(struct export_options *o, uid_t uid, gid_t gid)
{
    o->mounter = o->uid = uid;
    o->gid = gid;
    buf_printf(&o->given, "mounter=%u%cuid=%u%cgid=%u%c", uid, 0, uid, 0, gid, 0);
}

void export_options_fini(struct export_options *o)
{
    free(o->source);
    free(o->directory);
    free(o->prefix);
    free(o->log_level);
    free(o->log_directory);
    buf_free(&o->kernel_options);
    buf_free(&o->given);
    s3_settings_fini(&o->s3);
    *o = (struct export_options){0};
}

// --- one value ---

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

static int parse_id(const char *value, bool group, uint32_t *ret)
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

static const char *value_hint(enum export_option_kind kind)
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
    case TEXT:
    case FILE_PATH:
    case DIRECTORY:
    case PREFIX:
        break;
    }
    return "it needs a value";
}

// trusted: by a process with more rights, which has looked at the files.
static int apply(struct export_options *o, const struct export_option *opt, const char *value,
                 bool trusted)
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
        return parse_id(value, false, field);
    case GROUP:
        return parse_id(value, true, field);
    case GBPS:
        return parse_gbps(value, field);
    }
    return -EINVAL;
}

// --- by name ---

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '_' && *b == '-'))
            return false;
    return !*a && !*b;
}

static const struct export_option *find(const char *name)
{
    for (const struct export_option *opt = export_option_table; opt->name; opt++)
        if (same_name(name, opt->name))
            return opt;
    return NULL;
}

const char *export_option_nearest(const char *name)
{
    const char *names[EXPORT_OPTIONS_MAX] = {0};

    for (size_t i = 0; export_option_table[i].name; i++)
        names[i] = export_option_table[i].name;
    return text_nearest(name, names);
}

static void remember(struct export_options *o, const char *name, const char *value)
{
    buf_printf(&o->given, "%s=%s", name, value);
    buf_add(&o->given, "", 1);
}

static int set(struct export_options *o, const char *name, const char *value, bool trusted,
               char **ret_error)
{
    const struct export_option *opt = find(name);
    int rc;

    if (!opt) {
        const char *nearest = export_option_nearest(name);

        *ret_error = nearest
                         ? xasprintf("there is no option '%s'; did you mean '%s'?", name, nearest)
                         : xasprintf("there is no option '%s'", name);
        return -ENOENT;
    }
    rc = apply(o, opt, value, trusted);
    if (rc < 0) {
        bool path = opt->kind == FILE_PATH || opt->kind == DIRECTORY;

        if (path && value && *value)
            *ret_error = xasprintf("%s: cannot use %s: %s", opt->name, value, strerror(-rc));
        else if ((opt->kind == USER || opt->kind == GROUP) && rc == -ENOENT)
            *ret_error = xasprintf("%s: nobody here is called '%s'; %s", opt->name, value,
                                   value_hint((enum export_option_kind)opt->kind));
        else if (value && *value)
            *ret_error = xasprintf("%s: '%s' will not do; %s", opt->name, value,
                                   value_hint((enum export_option_kind)opt->kind));
        else
            *ret_error =
                xasprintf("%s: %s", opt->name, value_hint((enum export_option_kind)opt->kind));
        return -EINVAL;
    }
    if (opt->kind == FILE_PATH || opt->kind == DIRECTORY)
        value = *(char **)((char *)o + opt->offset);
    remember(o, opt->name, value ? value : "yes");
    return 0;
}

int export_options_set(struct export_options *o, const char *name, const char *value,
                       char **ret_error)
{
    return set(o, name, value, false, ret_error);
}

void export_options_set_directory(struct export_options *o, const char *directory)
{
    set_string(&o->directory, directory);
    remember(o, "directory", directory);
}

int export_options_set_source(struct export_options *o, const char *source, char **ret_error)
{
    char *bucket = NULL, *prefix = NULL;
    int rc = s3_url_parse(source, &bucket, &prefix, ret_error);

    if (rc < 0)
        return rc;
    set_string(&o->source, source);
    free(o->s3.bucket);
    o->s3.bucket = bucket;
    if (*prefix || !o->prefix) {
        free(o->prefix);
        o->prefix = prefix;
    } else {
        free(prefix);
    }
    remember(o, "source", source);
    return 0;
}

int export_options_replay(struct export_options *o, const char *given, size_t len, char **ret_error)
{
    const char *end = given + len;

    if (len == 0 || end[-1] != 0) {
        *ret_error = xstrdup("the list of options is cut short");
        return -EINVAL;
    }
    while (given < end) {
        const char *eq = strchr(given, '=');
        char *name;
        int rc;

        if (!eq) {
            *ret_error = xasprintf("'%s' is no option", given);
            return -EINVAL;
        }
        name = xstrndup(given, (size_t)(eq - given));
        if (!strcmp(name, "source")) {
            rc = export_options_set_source(o, eq + 1, ret_error);
        } else if (!strcmp(name, "directory")) {
            export_options_set_directory(o, eq + 1);
            rc = 0;
        } else if (!strcmp(name, "mounter")) {
            rc = parse_id(eq + 1, false, &o->mounter);
            if (rc < 0)
                *ret_error = xasprintf("mounter: '%s' is no user", eq + 1);
        } else {
            rc = set(o, name, eq + 1, true, ret_error);
        }
        free(name);
        if (rc < 0)
            return rc;
        given += strlen(given) + 1;
    }
    return 0;
}

// --- together ---

static unsigned default_threads(uint64_t memory)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t n = cores < 1 ? 1 : (uint64_t)MIN(cores, 4);

    return (unsigned)MAX(1, MIN(n, memory / MEMORY_PER_LOOP));
}

int export_options_complete(struct export_options *o, char **ret_error)
{
    if (!o->source) {
        *ret_error = xstrdup("say which bucket: s3://bucket or s3://bucket/prefix");
        return -EINVAL;
    }
    // however it was spelt: what /proc/mounts and the status show
    free(o->source);
    o->source = o->prefix && *o->prefix ? xasprintf("s3://%s/%s", o->s3.bucket, o->prefix)
                                        : xasprintf("s3://%s", o->s3.bucket);
    if (o->negative_ttl_ns == UNSET_TTL)
        o->negative_ttl_ns = MIN(o->metadata_ttl_ns, DEFAULT_NEGATIVE_TTL);
    if (!o->threads)
        o->threads = default_threads(o->memory);
    if (o->threads > MAX_THREADS) {
        *ret_error = xasprintf("threads: at most %d", MAX_THREADS);
        return -EINVAL;
    }
    if (o->s3.max_connections > MAX_CONNECTIONS) {
        *ret_error = xasprintf("max-connections: at most %d", MAX_CONNECTIONS);
        return -EINVAL;
    }
    if (o->memory < o->threads * MEMORY_PER_LOOP) {
        *ret_error =
            xasprintf("memory: %u data loops need at least %uM; give more memory or fewer threads",
                      o->threads, (unsigned)(o->threads * (MEMORY_PER_LOOP / MIB)));
        return -EINVAL;
    }
    if (o->allow_other && o->allow_root) {
        *ret_error = xstrdup("allow-other lets root in, too: leave allow-root out");
        return -EINVAL;
    }
    if (o->s3.no_sign_request && (o->s3.profile || o->s3.passwd_file)) {
        *ret_error = xstrdup(
            "no-sign-request means no credentials: leave out either it or profile and passwd-file");
        return -EINVAL;
    }
    return 0;
}

struct credentials_config export_options_credentials(const struct export_options *o)
{
    return (struct credentials_config){
        .no_sign_request = o->s3.no_sign_request,
        .profile = o->s3.profile,
        .access_key = o->s3.access_key,
        .secret_key = o->s3.secret_key,
        .session_token = o->s3.session_token,
        .passwd_file = o->s3.passwd_file,
        .bucket = o->s3.bucket,
        .region = o->s3.region,
        .ca_file = o->s3.ca_file,
    };
}
