// SPDX-License-Identifier: Apache-2.0
#include "cli/fstab.h"

#include "base/log.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What s3fs calls what we have, too.
static const struct {
    const char *theirs;
    const char *ours;
} aliases[] = {
    {"url", "endpoint-url"},
    {"host", "endpoint-url"},
    {"endpoint", "region"},
    {"use_path_request_style", "force-path-style"},
    {"passwd_file", "passwd-file"},
    {"public_bucket", "no-sign-request"},
    {"ro", "read-only"},
    {"stat_cache_expire", "metadata-ttl"},
    {"multireq_max", "max-connections"},
    {"logfile_dir", "log-directory"},
};

// For mount(8), for systemd, or of no meaning here: a mount is read-only, nosuid and nodev anyway.
static const char *const ignored[] = {
    "rw",       "defaults",   "_netdev",     "nofail",  "fail",     "auto",  "noauto",
    "user",     "nouser",     "users",       "nousers", "owner",    "group", "nosuid",
    "nodev",    "suid",       "dev",         "exec",    "async",    "sync",  "dirsync",
    "relatime", "norelatime", "strictatime", "atime",   "diratime", "mand",  "nomand",
    "silent",   "loud",       "_rnetdev",    "sigv4",   "nonempty", NULL};

// s3fs's wishes that something else does here; worth a line.
static const char *const needless[] = {"use_cache",
                                       "del_cache",
                                       "parallel_count",
                                       "multipart_size",
                                       "max_stat_cache_size",
                                       "enable_noobj_cache",
                                       "enable_content_md5",
                                       "ensure_diskfree",
                                       "retries",
                                       "connect_timeout",
                                       "readwrite_timeout",
                                       "compat_dir",
                                       "complement_stat",
                                       "notsup_compat_dir",
                                       "big_writes",
                                       "max_background",
                                       "dbglevel",
                                       "kernel_cache",
                                       "noforget",
                                       NULL};

// Flags that go to the kernel with the mount.
static const char *const kernel[] = {"noexec", "noatime", "nodiratime", NULL};

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(name, *list))
            return true;
    return false;
}

static const char *nearest(const char *name)
{
    const char *near = export_option_nearest(name), *names[ARRAY_LEN(aliases) + 2] = {0};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        names[n++] = aliases[i].theirs;
    if (near)
        names[n] = near;
    return text_nearest(name, names);
}

static int set_umask(struct export_options *o, const char *value, char **ret_error)
{
    char mode[8], *end;
    unsigned long mask = value ? strtoul(value, &end, 8) : 0;
    int rc;

    if (!value || !*value || *end || mask > 0777) {
        *ret_error = xstrdup("umask: write permissions that are taken away in octal, such as 022");
        return -EINVAL;
    }
    snprintf(mode, sizeof(mode), "%04lo", 0666 & ~mask);
    rc = export_options_set(o, "file-mode", mode, ret_error);
    snprintf(mode, sizeof(mode), "%04lo", 0777 & ~mask);
    return rc < 0 ? rc : export_options_set(o, "dir-mode", mode, ret_error);
}

static int unknown(const char *name, bool sloppy, char **ret_error)
{
    const char *near;

    if (sloppy)
        return 0;
    near = nearest(name);
    *ret_error = near ? xasprintf("there is no option '%s'; did you mean '%s'?", name, near)
                      : xasprintf("there is no option '%s'", name);
    return -EINVAL;
}

static int apply_one(struct export_options *o, const char *name, const char *value, bool sloppy,
                     char **ret_error)
{
    int rc;

    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        if (!strcmp(name, aliases[i].theirs))
            return export_options_set(o, aliases[i].ours, value, ret_error);
    if (!strcmp(name, "umask") || !strcmp(name, "mp_umask"))
        return set_umask(o, value, ret_error);
    if (is_one_of(name, kernel)) {
        buf_printf(&o->kernel_options, "%s%s", o->kernel_options.len ? "," : "", name);
        return 0;
    }
    if (is_one_of(name, ignored) || text_starts_with(name, "x-") || !strcmp(name, "comment"))
        return 0;
    if (is_one_of(name, needless)) {
        log_info("mount", "option '%s' is not needed here and ignored", name);
        return 0;
    }
    rc = export_options_set(o, name, value, ret_error);
    if (rc != -ENOENT)
        return rc;
    free(*ret_error);
    *ret_error = NULL;
    return unknown(name, sloppy, ret_error);
}

int fstab_options_apply(struct export_options *o, const char *text, bool sloppy, char **ret_error)
{
    int rc = 0;

    while (*text && rc == 0) {
        struct buf word = {0};
        char *value;

        for (; *text && *text != ','; text++) {
            if (*text == '\\' && text[1])
                text++;
            buf_add(&word, text, 1);
        }
        text += *text == ',';
        if (!word.len)
            continue;
        value = strchr(word.data, '=');
        if (value)
            *value++ = 0;
        rc = apply_one(o, word.data, value, sloppy, ret_error);
        buf_free(&word);
    }
    return rc;
}
