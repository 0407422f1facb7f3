// SPDX-License-Identifier: Apache-2.0
// s3fs's password file: lines of KEY:SECRET for all buckets or BUCKET:KEY:SECRET for one.
#include "s3/credentials_keys.h"
#include "s3/credentials_steps.h"
#include "s3/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// As with s3fs: nobody else may read it. A group may, because /etc/passwd-s3fs is usually 0640.
static int check_mode(const char *path, char **ret_error)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        int rc = -errno;

        *ret_error = xasprintf("cannot read the password file %s: %s", path, strerror(-rc));
        return rc;
    }
    if (st.st_mode & 037) {
        *ret_error = xasprintf("the password file %s is open to other users (mode %03o) and is not "
                               "used: run chmod 600 %s, and replace the keys if others may have "
                               "seen them",
                               path, st.st_mode & 0777u, path);
        return -EACCES;
    }
    return 0;
}

struct line {
    char *bucket, *access_key, *secret_key;
};

static bool split(char *text, struct line *ret)
{
    char *first = strchr(text, ':'), *second;

    text += strspn(text, " \t");
    if (!first || *text == '#')
        return false;
    *first++ = 0;
    second = strchr(first, ':');
    if (second) {
        *second++ = 0;
        *ret = (struct line){text, first, second};
    } else {
        *ret = (struct line){NULL, text, first};
    }
    return true;
}

// The bucket's own line, else the one for all.
static bool find_line(char *text, const char *bucket, struct line *ret)
{
    bool found = false;
    char *state;

    for (char *s = strtok_r(text, "\r\n", &state); s; s = strtok_r(NULL, "\r\n", &state)) {
        struct line line;

        if (!split(s, &line) || (line.bucket && (!bucket || strcmp(line.bucket, bucket) != 0)))
            continue;
        if (found && !line.bucket)
            continue;
        *ret = line;
        found = true;
        if (line.bucket)
            break;
    }
    return found;
}

int local_passwd_file(struct local *l)
{
    const char *path = l->config->passwd_file, *bucket = l->config->bucket;
    struct credentials *c = NULL;
    struct buf text = {0};
    struct line line;
    char *source;
    int rc = check_mode(path, &l->error);

    if (rc == 0)
        rc = file_read_small(path, MIB, &text, &l->error);
    if (rc < 0)
        goto done;
    rc = -EINVAL;
    if (!text.len || !find_line(text.data, bucket, &line)) {
        l->error = xasprintf("the password file %s has no line KEY:SECRET%s%s", path,
                             bucket ? ", nor one for bucket " : "", bucket ? bucket : "");
        goto done;
    }
    source = xasprintf("the password file %s", path);
    c = credentials_make(source, line.access_key, line.secret_key, NULL, 0, &l->error);
    free(source);
    if (c) {
        local_keys_add(l, c);
        rc = 1;
    }
done:
    file_forget(&text);
    return rc;
}
