// SPDX-License-Identifier: Apache-2.0
#include "daemon/export_option_table.h"

#include "base/clock.h"
#include "base/rendezvous.h"
#include "base/text.h"
#include "cache/cache.h"

#include <stdlib.h>
#include <string.h>
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
        .socket_mode = UINT32_MAX,
        .socket_group = UINT32_MAX,
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
    free(o->socket);
    free(o->socket_allow);
    free(o->socket_tag);
    free(o->gpu_memory);
    buf_free(&o->kernel_options);
    buf_free(&o->given);
    s3_settings_fini(&o->s3);
    *o = (struct export_options){0};
}

static void set_string(char **field, const char *value)
{
    free(*field);
    *field = xstrdup(value);
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

// Numbers of files: a worker has no right to look at them.
static void remember_gpu_memory(struct export_options *o, size_t from)
{
    buf_printf(&o->given, "gpu-memory=");
    for (size_t i = from; i < o->n_gpu_memory; i++)
        buf_printf(&o->given, "%s%llu:%llu", i > from ? "," : "",
                   (unsigned long long)o->gpu_memory[i].dev,
                   (unsigned long long)o->gpu_memory[i].ino);
    buf_add(&o->given, "", 1);
}

static int set(struct export_options *o, const char *name, const char *value, bool trusted,
               char **ret_error)
{
    const struct export_option *opt = find(name);
    size_t n_gpu_memory = o->n_gpu_memory;
    int rc;

    if (!opt) {
        const char *nearest = export_option_nearest(name);

        *ret_error = nearest
                         ? xasprintf("there is no option '%s'; did you mean '%s'?", name, nearest)
                         : xasprintf("there is no option '%s'", name);
        return -ENOENT;
    }
    rc = export_option_apply(o, opt, value, trusted);
    if (rc < 0) {
        bool path = opt->kind == FILE_PATH || opt->kind == DIRECTORY || opt->kind == GPU_FILES;

        if (path && value && *value)
            *ret_error = xasprintf("%s: cannot use %s: %s", opt->name, value, strerror(-rc));
        else if ((opt->kind == USER || opt->kind == USERS || opt->kind == GROUP) && rc == -ENOENT)
            *ret_error = xasprintf("%s: nobody here is called '%s'; %s", opt->name, value,
                                   export_option_hint((enum export_option_kind)opt->kind));
        else if (value && *value)
            *ret_error = xasprintf("%s: '%s' will not do; %s", opt->name, value,
                                   export_option_hint((enum export_option_kind)opt->kind));
        else
            *ret_error = xasprintf("%s: %s", opt->name,
                                   export_option_hint((enum export_option_kind)opt->kind));
        return -EINVAL;
    }
    if (opt->kind == FILE_PATH || opt->kind == DIRECTORY || opt->kind == SOCKET)
        value = *(char **)((char *)o + opt->offset);
    if (opt->kind == GPU_FILES)
        remember_gpu_memory(o, n_gpu_memory);
    else
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
            rc = export_option_parse_id(eq + 1, false, &o->mounter);
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

// --- the socket ---

int export_options_default_socket(struct export_options *o, const char *path, char **ret_error)
{
    char *own;
    int rc;

    if (o->socket || !o->directory)
        return 0;
    if (path && *path)
        return export_options_set(o, "socket", path, ret_error);
    own = rendezvous_socket(o->mounter, o->directory);
    rc = export_options_set(o, "socket", own, ret_error);
    free(own);
    return rc;
}

bool export_options_offers_socket(const struct export_options *o)
{
    return o->socket && strcmp(o->socket, "none") != 0;
}

const char *export_options_place(const struct export_options *o)
{
    return o->directory ? o->directory : o->socket;
}

// --- together ---

static unsigned default_threads(uint64_t memory)
{
    uint64_t n = MIN(base_cores(), 4);

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
