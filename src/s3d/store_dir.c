// SPDX-License-Identifier: Apache-2.0
// A bucket that is a directory. A key that is an ordinary relative path is the file of that name;
// others (empty, "." or ".." components, a '/' at the end, a component over 255 bytes, or a name
// that is both an object and a prefix) are files below .os2g-s3d/keys/, see escape_key. ETag and
// metadata are in an extended attribute; a file without one, or changed since, gets an ETag made
// of its size and time.
#include "base/clock.h"
#include "base/text.h"
#include "s3d/dir_walk.h"
#include "s3d/store.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define XATTR_NAME "user.os2g-s3d"

struct bucket_dir {
    struct bucket base;
    int fd;
    pthread_mutex_t lock;  // one change of names at a time
    atomic_uint temporary; // for unique names

    pthread_mutex_t cursor_lock;
    struct dir_cursor *spare; // under cursor_lock: what the last listing has read
};

static struct bucket_dir *to_dir(struct bucket *b)
{
    return container_of(b, struct bucket_dir, base);
}

// --- names ---

// Whether the key can be a file's path as it is.
static bool key_is_ordinary(const char *key)
{
    const char *p = key;

    if (text_starts_with(key, DIR_PRIVATE "/") || !strcmp(key, DIR_PRIVATE))
        return false;
    for (;;) {
        size_t n = strcspn(p, "/");

        if (n == 0 || n > 255 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        if (!p[n])
            return true;
        p += n + 1;
    }
}

// The key percent-encoded, cut into pieces of DIR_PIECE characters: each but the last is a
// directory and ends in '+', the last is the file and ends in '='.
static char *escape_key(const char *key)
{
    struct buf encoded = {0}, path = {0};

    text_percent_encode(&encoded, key, strlen(key), false);
    buf_add_str(&path, DIR_KEYS);
    for (size_t at = 0; at < encoded.len || at == 0; at += DIR_PIECE) {
        size_t n = MIN(encoded.len - at, DIR_PIECE);

        buf_add_str(&path, "/");
        buf_add(&path, encoded.data + at, n);
        buf_add_str(&path, at + n == encoded.len ? "=" : "+");
    }
    buf_free(&encoded);
    return buf_steal(&path);
}

static int make_parents(int fd, const char *path)
{
    char *copy = xstrdup(path);
    int rc = 0;

    for (char *slash = strchr(copy, '/'); slash && rc == 0; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdirat(fd, copy, 0755) < 0 && errno != EEXIST)
            rc = -errno;
        *slash = '/';
    }
    free(copy);
    return rc;
}

static void remove_empty_parents(int fd, const char *path)
{
    char *copy = xstrdup(path), *slash;

    while ((slash = strrchr(copy, '/'))) {
        *slash = 0;
        if (unlinkat(fd, copy, AT_REMOVEDIR) < 0)
            break;
    }
    free(copy);
}

// --- attributes ---

// The version of the file that an ETag belongs to.
static void describe_version(const struct stat *st, char out[static 64])
{
    snprintf(out, 64, "%llu %lld.%09ld", (unsigned long long)st->st_size,
             (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
}

// ETAG "\n" VERSION "\n" CONTENT-TYPE "\n" STORAGE-CLASS "\n" HEADERS
static void write_attributes(int fd, const struct object *o)
{
    struct buf b = {0};
    char version[64];
    struct stat st;

    if (fstat(fd, &st) < 0)
        return;
    describe_version(&st, version);
    buf_printf(&b, "%s\n%s\n%s\n%s\n%s", o->etag, version,
               o->meta && o->meta->content_type ? o->meta->content_type : "",
               o->meta && o->meta->storage_class ? o->meta->storage_class : "",
               o->meta ? o->meta->headers : "");
    // a file system without attributes: the object lives on with an ETag of its size and time
    fsetxattr(fd, XATTR_NAME, b.data, b.len, 0);
    buf_free(&b);
}

static void derived_etag(const struct stat *st, char etag[static 48])
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    uint64_t identity[4] = {(uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec,
                            (uint64_t)st->st_mtim.tv_nsec, (uint64_t)st->st_ino};

    SHA256((const uint8_t *)identity, sizeof(identity), digest);
    text_hex(digest, 16, etag);
    memcpy(etag + 32, "-1", 3);
}

static void parse_attributes(char *text, const struct stat *st, struct object *o)
{
    const char *etag = strsep(&text, "\n"), *version = strsep(&text, "\n");
    const char *type = strsep(&text, "\n"), *class = strsep(&text, "\n");
    char now[64];

    if (!text) // the headers, which may be none, but there they are
        return;
    describe_version(st, now);
    if (!strcmp(version, now))
        snprintf(o->etag, sizeof(o->etag), "%s", etag);
    o->meta = meta_new(*type ? type : NULL, *class ? class : NULL, text);
}

static void read_attributes(int fd, const struct stat *st, struct object *o)
{
    char text[8192];
    ssize_t n = fgetxattr(fd, XATTR_NAME, text, sizeof(text) - 1);

    *o = (struct object){.size = (uint64_t)st->st_size, .mtime_s = st->st_mtim.tv_sec};
    derived_etag(st, o->etag);
    if (n <= 0)
        return;
    text[n] = 0;
    parse_attributes(text, st, o);
}

// --- objects ---

// Opens the regular file at path; -ENOENT when it is something else.
static int open_file(struct bucket_dir *d, const char *path, struct stat *st)
{
    int fd = openat(d->fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *st = (struct stat){0};
    if (fd < 0)
        return errno == ENOTDIR || errno == EISDIR || errno == ENAMETOOLONG ? -ENOENT : -errno;
    if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode)) {
        close(fd);
        return -ENOENT;
    }
    return fd;
}

static int open_key(struct bucket_dir *d, const char *key, struct stat *st, char **ret_path)
{
    char *path;
    int fd;

    if (key_is_ordinary(key)) {
        fd = open_file(d, key, st);
        if (fd != -ENOENT) {
            *ret_path = xstrdup(key);
            return fd;
        }
    }
    path = escape_key(key);
    fd = open_file(d, path, st);
    *ret_path = path;
    return fd;
}

static int dir_get(struct bucket *b, const char *key, bool with_bytes, struct object *ret)
{
    struct stat st;
    char *path;
    int fd = open_key(to_dir(b), key, &st, &path);

    free(path);
    if (fd < 0)
        return fd;
    read_attributes(fd, &st, ret);
    if (with_bytes)
        ret->blob = blob_from_file(fd, ret->size);
    else
        close(fd);
    return 0;
}

static int temporary_file(struct bucket_dir *d)
{
    int fd = openat(d->fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);

    return fd < 0 ? -errno : fd;
}

static int dir_blob_new(struct bucket *b, struct blob **ret)
{
    int fd = temporary_file(to_dir(b));

    if (fd < 0)
        return fd;
    *ret = blob_new_file(fd);
    return 0;
}

// The bytes as a file of this file system that has no name yet: the upload's own, or a copy.
static int unnamed_file(struct bucket_dir *d, const struct object *o, bool *ret_is_copy)
{
    struct stat mine, theirs;
    int fd, rc;

    *ret_is_copy = false;
    if (o->blob && o->blob->fd >= 0 && fstat(o->blob->fd, &theirs) == 0 && theirs.st_nlink == 0 &&
        fstat(d->fd, &mine) == 0 && mine.st_dev == theirs.st_dev)
        return o->blob->fd;
    fd = temporary_file(d);
    if (fd < 0)
        return fd;
    rc = o->blob ? blob_copy_to_file(o->blob, 0, o->size, fd) : 0;
    if (rc < 0) {
        close(fd);
        return rc;
    }
    *ret_is_copy = true;
    return fd;
}

// There is no call that replaces a name by an unnamed file: it gets a name of its own first.
static int name_temporarily(struct bucket_dir *d, int file, char name[static 64])
{
    char self[64];

    snprintf(self, sizeof(self), "/proc/self/fd/%d", file);
    snprintf(name, 64, DIR_PRIVATE "/tmp-%d-%u", (int)getpid(), atomic_fetch_add(&d->temporary, 1));
    if (mkdirat(d->fd, DIR_PRIVATE, 0755) < 0 && errno != EEXIST)
        return -errno;
    return linkat(AT_FDCWD, self, d->fd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int move_to(struct bucket_dir *d, const char *temporary, const char *path)
{
    int rc = make_parents(d->fd, path);

    if (rc == 0 && renameat(d->fd, temporary, d->fd, path) < 0)
        rc = -errno;
    return rc;
}

static bool key_exists(struct bucket_dir *d, const char *key)
{
    struct stat st;
    char *path;
    int fd = open_key(d, key, &st, &path);

    free(path);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static int put_locked(struct bucket_dir *d, const char *key, int file, bool must_be_new)
{
    char *escaped, temporary[64];
    int rc;

    if (must_be_new && key_exists(d, key))
        return -EEXIST;
    rc = name_temporarily(d, file, temporary);
    if (rc < 0)
        return rc;
    escaped = escape_key(key);
    rc = key_is_ordinary(key) ? move_to(d, temporary, key) : -ENOTDIR;
    if (rc == 0) {
        if (unlinkat(d->fd, escaped, 0) == 0)
            remove_empty_parents(d->fd, escaped);
    } else if (rc == -ENOTDIR || rc == -EISDIR || rc == -ENOTEMPTY || rc == -EEXIST) {
        // a file where the key has a directory, or the other way round
        rc = move_to(d, temporary, escaped);
    }
    if (rc < 0)
        unlinkat(d->fd, temporary, 0);
    free(escaped);
    return rc;
}

static int dir_put(struct bucket *b, const char *key, const struct object *o, bool must_be_new)
{
    struct bucket_dir *d = to_dir(b);
    bool is_copy;
    int file = unnamed_file(d, o, &is_copy), rc;

    if (file < 0)
        return file;
    write_attributes(file, o);
    pthread_mutex_lock(&d->lock);
    rc = put_locked(d, key, file, must_be_new);
    pthread_mutex_unlock(&d->lock);
    if (is_copy)
        close(file);
    return rc;
}

static int dir_remove(struct bucket *b, const char *key)
{
    struct bucket_dir *d = to_dir(b);
    struct stat st;
    char *path;
    int rc, fd;

    pthread_mutex_lock(&d->lock);
    rc = fd = open_key(d, key, &st, &path);
    if (fd >= 0) {
        close(fd);
        rc = unlinkat(d->fd, path, 0) < 0 ? -errno : 0;
        if (rc == 0)
            remove_empty_parents(d->fd, path);
    }
    pthread_mutex_unlock(&d->lock);
    free(path);
    return rc;
}

static int dir_touch(struct bucket *b, const char *key, uint64_t *ret_generation)
{
    return -ENOTSUP;
}

// --- listing ---

struct dir_cursor {
    struct cursor base;
    struct dir_walk walk;
};

static struct dir_cursor *exchange_spare(struct bucket_dir *d, struct dir_cursor *c)
{
    struct dir_cursor *spare;

    pthread_mutex_lock(&d->cursor_lock);
    spare = d->spare;
    d->spare = c;
    pthread_mutex_unlock(&d->cursor_lock);
    return spare;
}

static void cursor_free(struct dir_cursor *c)
{
    if (!c)
        return;
    dir_walk_fini(&c->walk);
    free(c);
}

static struct cursor *dir_list_begin(struct bucket *b)
{
    struct bucket_dir *d = to_dir(b);
    struct dir_cursor *c = exchange_spare(d, NULL);

    if (!c) {
        c = xcalloc(1, sizeof(*c));
        c->base.bucket = b;
        dir_walk_init(&c->walk, d->fd);
    }
    dir_walk_begin(&c->walk);
    return &c->base;
}

static int dir_list_next(struct cursor *c, const char *key, bool after, struct listed *ret)
{
    struct dir_cursor *dc = container_of(c, struct dir_cursor, base);
    struct bucket_dir *d = to_dir(c->bucket);
    char from[KEY_MAX_BYTES + 1];

    snprintf(from, sizeof(from), "%s", key);
    for (;; after = true) {
        struct object o;
        int rc = dir_walk_next(&dc->walk, from, after, ret->key);

        if (rc < 0)
            return rc;
        rc = dir_get(&d->base, ret->key, false, &o);
        if (rc == 0) {
            ret->size = o.size;
            ret->mtime_s = o.mtime_s;
            memcpy(ret->etag, o.etag, sizeof(ret->etag));
            snprintf(ret->storage_class, sizeof(ret->storage_class), "%s",
                     o.meta && o.meta->storage_class ? o.meta->storage_class : "STANDARD");
            object_fini(&o);
            return 0;
        }
        memcpy(from, ret->key, sizeof(from)); // gone since, or not readable
    }
}

static void dir_list_end(struct cursor *c)
{
    struct dir_cursor *dc = container_of(c, struct dir_cursor, base);

    cursor_free(exchange_spare(to_dir(c->bucket), dc));
}

// --- life ---

static void dir_free(struct bucket *b)
{
    struct bucket_dir *d = to_dir(b);

    close(d->fd);
    cursor_free(d->spare);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->cursor_lock);
    bucket_fini(b);
    free(d);
}

static const struct bucket_ops dir_ops = {
    .get = dir_get,
    .put = dir_put,
    .remove = dir_remove,
    .touch = dir_touch,
    .blob_new = dir_blob_new,
    .list_begin = dir_list_begin,
    .list_next = dir_list_next,
    .list_end = dir_list_end,
    .free = dir_free,
};

int store_dir_open(struct bucket **ret, int data_fd, const char *data_path, const char *name,
                   bool create)
{
    struct bucket_dir *d;
    int fd;

    if (create && mkdirat(data_fd, name, 0755) < 0)
        return -errno;
    fd = openat(data_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    d = xcalloc(1, sizeof(*d));
    bucket_init(&d->base, &dir_ops, name);
    d->fd = fd;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->cursor_lock, NULL);
    *ret = &d->base;
    return 0;
}

int store_dir_delete(int data_fd, const char *name)
{
    char *keys = xasprintf("%s/" DIR_KEYS, name), *private = xasprintf("%s/" DIR_PRIVATE, name);

    unlinkat(data_fd, keys, AT_REMOVEDIR);
    unlinkat(data_fd, private, AT_REMOVEDIR);
    free(keys);
    free(private);
    return unlinkat(data_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}
