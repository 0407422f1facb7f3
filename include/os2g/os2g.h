// SPDX-License-Identifier: Apache-2.0
// libos2g: objects of a bucket, landed in this process's memory, host's or GPU's, by an os2gd that
// does the talking to the store. Link with -los2g (pkg-config: os2g); man pages os2g_connect(3),
// os2g_buffer(3), os2g_open(3), os2g_fetch(3), os2g_batch(3), os2g_plan(3).
//
//     struct os2g *c;
//     struct os2g_buffer *b;
//     uint64_t size;
//
//     if (os2g_connect(&c, "s3://bucket/train/", NULL) < 0 ||
//         os2g_buffer_alloc(c, &b, 1 << 20, OS2G_MEMORY_HOST, 0) < 0 ||
//         os2g_fetch(c, "img/0001.jpg", os2g_buffer_base(b), 1 << 20, 0, &size) < 0)
//         errx(1, "%s", os2g_last_error());
//
// Errors: functions return 0 (or a number of bytes), or a negative errno; os2g_last_error() then
// has a sentence for people, of this thread's last failure. -ENOTCONN: the daemon has gone and has
// not come back within the connection's time-out.
//
// Threads: a struct os2g and everything made from it may be used by any thread at any time; the
// only rule is that nothing is used after it was freed. A blocked call ends when its time-out is
// over, another thread cancels it, or os2g_options.interrupted says so.
//
// fork(): the child may go on using every struct os2g and open file: it makes a connection of its
// own when it first needs one. Buffers of OS2G_MEMORY_HOST are shared with the parent as MAP_SHARED
// memory is; batches, plans and CUDA buffers stay the parent's (-EPERM in the child).
//
// A buffer belongs to the device from when a read into it begins until its completion has been
// reported, also after a time-out or cancel; until a read has ended with success, the contents of
// its destination are undefined.
#ifndef OS2G_H
#define OS2G_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OS2G_API __attribute__((visibility("default")))

struct os2g;        // a connection
struct os2g_buffer; // memory that the device may write
struct os2g_file;   // an object version, opened
struct os2g_batch;
struct os2g_plan;

OS2G_API const char *os2g_version(void); // "0.1.0"
// Never NULL; valid until this thread's next failing call.
OS2G_API const char *os2g_last_error(void);

// --- connecting: os2g_connect(3) ---

enum os2g_event {
    OS2G_EVENT_LOST,        // the daemon has gone; what is under way waits
    OS2G_EVENT_RECONNECTED, // and is back: reads that were under way have been asked again
    OS2G_EVENT_FALLBACK,    // bytes take a slower way than was asked for; text says why
};

// Zero it, set what you need. size lets it grow: sizeof(struct os2g_options); an option that is set
// and that this library does not know yet is -EINVAL.
struct os2g_options {
    size_t size;
    unsigned depth;      // requests under way at a time (default 256, at most 1024)
    unsigned timeout_ms; // of a call that waits, and for the daemon to come back (default 90 s)
    bool no_start;       // never start a daemon: -ENOENT when there is none
    const char *program; // os2gd to start (default: OS2GD, beside the library, $PATH)
    // Options of an export for a daemon that is started, as os2g(1) has them:
    // "endpoint-url=http://…", ends with NULL. May be NULL.
    const char *const *export_options;
    // Called on some thread of the caller's, during a call of this library; must not call it.
    void (*event)(void *arg, enum os2g_event event, const char *text);
    void *arg;
    // Asked about every 50 ms by a call that waits, on the caller's thread; true: it ends with
    // -EINTR, as if its time were over. os2g_batch_status then reports what there is. Not asked by
    // os2g_connect and by calls that free. Must not call the library.
    bool (*interrupted)(void *arg);
};

// where: "s3://bucket/prefix/" (OS2G_SOCKET's daemon if that is set, which is to serve that, or a
// part of the bucket that it lies in, and from the endpoint that the options or the environment
// name, if they do: else -EINVAL; otherwise a private one, of this user and these options, which is
// started when it is not there and ends with the last process that uses it); the path of an
// export's socket; or a directory in a mount of os2g's (its socket; in a guest its .os2g/gdd),
// with all of the mount's keys also where it lies below the top. options may be NULL. The prefix is
// left out of every path and key below. -ENOENT, -ECONNREFUSED, -EACCES (the socket), -EPROTO
// (versions), -EINVAL, -ETIMEDOUT, -EIO (a private daemon cannot serve: wrong bucket, keys or
// options; the sentence says what).
OS2G_API int os2g_connect(struct os2g **ret, const char *where, const struct os2g_options *options);
// Buffers, files, batches and plans made from c must have been freed. Waits until no byte can land
// any more. NULL is allowed.
OS2G_API void os2g_close(struct os2g *c);

struct os2g_stats {
    size_t size; // set by the caller: sizeof(struct os2g_stats)
    uint64_t requests, bytes, errors;
    uint64_t bounced_bytes; // through the bounce buffer
    uint64_t reconnects;
    uint64_t cuda_bytes;
    char way[32];     // how bytes come: "shared memory", "guest BAR"
    char release[16]; // of the daemon
};
OS2G_API int os2g_stats_read(struct os2g *c, struct os2g_stats *ret);

// --- memory: os2g_buffer(3) ---

enum os2g_memory {
    OS2G_MEMORY_HOST = 0, // shared with the device: bytes land in place
    // GPU memory of the current CUDA context. The daemon opens it (cuMemCreate) if it can reach the
    // GPU; else, and with OS2G_CUDA=pull, bytes land in a pinned ring and are copied by this
    // process's stream. One event line says which.
    OS2G_MEMORY_CUDA = 1,
    OS2G_MEMORY_BAR = 2, // in a guest: a lease of the BAR that the operator has declared
};

// device: CUDA ordinal; with OS2G_MEMORY_BAR ignored. Zeroed memory, aligned to 2 MiB.
OS2G_API int os2g_buffer_alloc(struct os2g *c, struct os2g_buffer **ret, size_t size,
                               enum os2g_memory memory, int device);
// Memory that the caller has mapped from a memfd or another shareable descriptor at offset: stays
// the caller's, fd may be closed afterwards. Sealed against shrinking (F_SEAL_SHRINK) bytes land
// without a copy, else after one.
OS2G_API int os2g_buffer_register_fd(struct os2g *c, struct os2g_buffer **ret, void *base,
                                     size_t size, int fd, off_t offset);
// cudaMalloc or cuMemAlloc memory (also PyTorch's), as OS2G_MEMORY_CUDA; by CUDA IPC.
OS2G_API int os2g_buffer_register_cuda(struct os2g *c, struct os2g_buffer **ret, void *device_ptr,
                                       size_t size);
OS2G_API void *os2g_buffer_base(const struct os2g_buffer *b); // device pointer for CUDA
OS2G_API size_t os2g_buffer_size(const struct os2g_buffer *b);
OS2G_API enum os2g_memory os2g_buffer_memory(const struct os2g_buffer *b);
// Waits until nothing can land in it any more: reads into it that are under way end with
// -ECANCELED. NULL is allowed.
OS2G_API void os2g_buffer_free(struct os2g_buffer *b);

// cuFile's shape, for memory of any kind. A GPU's is registered as by os2g_buffer_register_cuda;
// plain (malloc) memory is remembered and served through a bounce buffer: one copy more. flags: 0.
// After deregistering nothing is written there any more, as after os2g_buffer_free.
OS2G_API int os2g_buf_register(struct os2g *c, void *base, size_t size, int flags);
OS2G_API int os2g_buf_deregister(struct os2g *c, void *base);

// --- files: os2g_open(3) ---

struct os2g_stat {
    uint64_t size;
    int64_t mtime_s;
    bool directory;
    char etag[128]; // "" if not known
    uint64_t reserved[4];
};

// path: below the export, as in a mount of it; "/" separates. -ENOENT, -EISDIR, -EACCES, -EIO.
OS2G_API int os2g_open(struct os2g *c, const char *path, struct os2g_file **ret);
OS2G_API void os2g_file_close(struct os2g_file *f); // no read under way; NULL is allowed
OS2G_API uint64_t os2g_file_size(const struct os2g_file *f);
OS2G_API int os2g_file_stat(struct os2g_file *f, struct os2g_stat *ret);
OS2G_API int os2g_stat(struct os2g *c, const char *path, struct os2g_stat *ret);
// Calls fn for each name of the directory, in byte order of keys; it returns 0 to go on, else that
// is returned. "." and ".." are left out.
OS2G_API int os2g_list(struct os2g *c, const char *path,
                       int (*fn)(void *arg, const char *name, const struct os2g_stat *st),
                       void *arg);

// As cuFileRead: up to size bytes at file_offset, to buffer_base + buffer_offset. The destination
// is looked up among the buffers and registered memory; anything else goes through the bounce
// buffer. Returns the number of bytes, short only at the end of the object; -ESTALE: the store has
// another version now; -ETIMEDOUT, -ECANCELED, -EIO.
OS2G_API ssize_t os2g_read(struct os2g_file *f, void *buffer_base, size_t size, off_t file_offset,
                           off_t buffer_offset);

// --- whole objects: os2g_fetch(3) ---

// An object by its key below the export, taken literally (any bytes): lookup, open, read and close
// in one request. -EFBIG: it is larger than size; *ret_size says how large.
OS2G_API int os2g_fetch(struct os2g *c, const char *key, void *buffer_base, size_t size,
                        off_t buffer_offset, uint64_t *ret_size);
OS2G_API int os2g_fetch_key(struct os2g *c, const char *key, size_t key_len, void *buffer_base,
                            size_t size, off_t buffer_offset, uint64_t *ret_size);

// --- many at once: os2g_batch(3) ---

enum os2g_io_kind { OS2G_IO_READ = 0, OS2G_IO_FETCH = 1 };

struct os2g_io {
    enum os2g_io_kind kind;
    struct os2g_file *file; // READ
    const char *key;        // FETCH; copied
    size_t key_len;         // 0: key ends with zero
    void *buffer_base;
    size_t size;
    off_t file_offset; // READ
    off_t buffer_offset;
    void *cookie;
    uint64_t reserved[2]; // 0
};

struct os2g_io_event {
    void *cookie;
    // Bytes landed, or a negative errno (-ECANCELED, -ETIMEDOUT, -EFBIG, …).
    int64_t result;
    uint64_t object_size; // FETCH, also with -EFBIG
    uint64_t reserved;
};

// max: operations submitted and not reported yet.
OS2G_API int os2g_batch_new(struct os2g *c, struct os2g_batch **ret, unsigned max);
// All or none: -EAGAIN when they do not fit, -EINVAL (nothing has begun). Does not wait, but for
// the bounce memory, which the first operation into plain memory shares with the daemon.
OS2G_API int os2g_batch_submit(struct os2g_batch *b, const struct os2g_io *io, unsigned n);
// Reports ended operations, in the order of their ends: at least min (unless fewer are under way or
// timeout is over), at most max; returns how many. timeout NULL: as long as it takes.
OS2G_API int os2g_batch_status(struct os2g_batch *b, unsigned min, unsigned max,
                               struct os2g_io_event *events, const struct timespec *timeout);
// Asks for the end of what has not ended: each is reported still, most as -ECANCELED.
OS2G_API int os2g_batch_cancel(struct os2g_batch *b);
// Readable while something is to be reported. Not to be read or closed. -errno.
OS2G_API int os2g_batch_eventfd(struct os2g_batch *b);
// Cancels, waits for the ends and frees. NULL is allowed.
OS2G_API void os2g_batch_free(struct os2g_batch *b);

// As cuFileReadAsync: in the order of a CUDA stream (CUstream or cudaStream_t; NULL: the default
// stream). The pointed-to values are read when the stream gets there; *bytes_read is written before
// what follows on the stream runs: bytes, or a negative errno.
OS2G_API int os2g_read_async(struct os2g_file *f, void *buffer_base, const size_t *size,
                             const off_t *file_offset, const off_t *buffer_offset,
                             ssize_t *bytes_read, void *stream);

// --- plans: os2g_plan(3) ---

struct os2g_plan_status {
    uint64_t entries, fetched, used, dropped, missing, bytes;
    uint64_t reserved[4];
};

// The order in which this and other processes are going to read: objects are fetched ahead in it,
// each once. window_bytes 0: what readers turn out to need, up to half of the daemon's memory.
OS2G_API int os2g_plan_new(struct os2g *c, struct os2g_plan **ret, uint64_t window_bytes);
// Keys as for os2g_fetch, n of them, each ending with zero. Before the commit.
OS2G_API int os2g_plan_add(struct os2g_plan *p, const char *const *keys, size_t n);
OS2G_API int os2g_plan_commit(struct os2g_plan *p);
OS2G_API int os2g_plan_status(struct os2g_plan *p, struct os2g_plan_status *ret);
OS2G_API void os2g_plan_free(struct os2g_plan *p); // ends it; NULL is allowed

#ifdef __cplusplus
}
#endif
#endif
