// SPDX-License-Identifier: Apache-2.0
#include "base/mount_table.h"

#include "base/buf.h"
#include "base/text.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FS_TYPE "fuse.os2g"

// The kernel writes blanks, tabs, newlines and backslashes as three octal digits.
static char *unescape(const char *s, size_t len)
{
    char *out = xmalloc(len + 1), *to = out;

    for (size_t i = 0; i < len; i++) {
        if (s[i] == '\\' && i + 3 < len && s[i + 1] >= '0' && s[i + 1] <= '3' && s[i + 2] >= '0' &&
            s[i + 2] <= '7' && s[i + 3] >= '0' && s[i + 3] <= '7') {
            *to++ = (char)((s[i + 1] - '0') << 6 | (s[i + 2] - '0') << 3 | (s[i + 3] - '0'));
            i += 3;
        } else {
            *to++ = s[i];
        }
    }
    *to = 0;
    return out;
}

struct word {
    const char *at;
    size_t len;
};

static struct word next_word(const char **line)
{
    struct word w = {*line, strcspn(*line, " \n")};

    *line += w.len;
    if (**line == ' ')
        ++*line;
    return w;
}

static bool word_is(struct word w, const char *text)
{
    return w.len == strlen(text) && !memcmp(w.at, text, w.len);
}

static uid_t owner_of(struct word options)
{
    char *copy = xstrndup(options.at, options.len), *at = strstr(copy, "user_id=");
    uid_t owner = at ? (uid_t)strtoul(at + strlen("user_id="), NULL, 10) : 0;

    free(copy);
    return owner;
}

// id parent major:minor root directory options [tags...] - type source super-options
static void parse_line(struct mount_table *t, const char *line)
{
    struct word directory, type, source, w;

    for (int i = 0; i < 4; i++)
        next_word(&line);
    directory = next_word(&line);
    do {
        w = next_word(&line);
    } while (w.len && !word_is(w, "-"));
    type = next_word(&line);
    source = next_word(&line);
    t->entries = xrealloc(t->entries, (t->n + 1) * sizeof(*t->entries));
    t->entries[t->n++] = (struct mount_entry){
        .directory = unescape(directory.at, directory.len),
        .source = unescape(source.at, source.len),
        .owner = owner_of(next_word(&line)),
        .ours = word_is(type, FS_TYPE),
    };
}

void mount_table_parse(struct mount_table *ret, const char *text)
{
    *ret = (struct mount_table){0};
    while (*text) {
        const char *end = strchr(text, '\n');

        parse_line(ret, text);
        text = end ? end + 1 : text + strlen(text);
    }
}

int mount_table_read(struct mount_table *ret)
{
    int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC), rc = 0;
    struct buf text = {0};
    ssize_t n;

    if (fd < 0)
        return -errno;
    do {
        buf_reserve(&text, 64 * KIB);
        n = read(fd, text.data + text.len, 64 * KIB);
        if (n > 0)
            text.len += (size_t)n;
    } while (n > 0);
    if (n < 0)
        rc = -errno;
    close(fd);
    text.data[text.len] = 0;
    if (rc == 0)
        mount_table_parse(ret, text.data);
    buf_free(&text);
    return rc;
}

void mount_table_free(struct mount_table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->entries[i].directory);
        free(t->entries[i].source);
    }
    free(t->entries);
    *t = (struct mount_table){0};
}

static bool lies_in(const char *path, const char *directory)
{
    size_t len = strlen(directory);

    return !strncmp(path, directory, len) &&
           (path[len] == 0 || path[len] == '/' || (len && directory[len - 1] == '/'));
}

const struct mount_entry *mount_table_find(const struct mount_table *t, const char *path)
{
    const struct mount_entry *best = NULL;

    // of two at one place the later one covers the earlier
    for (size_t i = 0; i < t->n; i++)
        if (t->entries[i].ours && lies_in(path, t->entries[i].directory) &&
            (!best || strlen(t->entries[i].directory) >= strlen(best->directory)))
            best = &t->entries[i];
    return best;
}

const struct mount_entry *mount_table_at(const struct mount_table *t, const char *directory)
{
    const struct mount_entry *found = NULL;

    for (size_t i = 0; i < t->n; i++)
        if (t->entries[i].ours && !strcmp(t->entries[i].directory, directory))
            found = &t->entries[i];
    return found;
}

const struct mount_entry *mount_table_top(const struct mount_table *t, const char *directory)
{
    const struct mount_entry *found = NULL;

    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->entries[i].directory, directory))
            found = &t->entries[i];
    return found;
}

char *mount_table_absolute(const char *directory)
{
    char *path, *parent, *slash, *absolute;

    path = realpath(directory, NULL);
    if (path || (errno != ENOTCONN && errno != ECONNABORTED && errno != EACCES))
        return path;
    // only the last component cannot be looked at
    path = xstrdup(directory);
    while (strlen(path) > 1 && text_ends_with(path, "/"))
        path[strlen(path) - 1] = 0;
    slash = strrchr(path, '/');
    parent = !slash          ? xstrdup(".")
             : slash == path ? xstrdup("/")
                             : xstrndup(path, (size_t)(slash - path));
    absolute = realpath(parent, NULL);
    if (absolute) {
        char *joined =
            xasprintf("%s/%s", strcmp(absolute, "/") ? absolute : "", slash ? slash + 1 : path);

        free(absolute);
        absolute = joined;
    }
    free(parent);
    free(path);
    return absolute;
}
