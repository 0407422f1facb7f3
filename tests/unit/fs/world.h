// SPDX-License-Identifier: Apache-2.0
// A store, a cache and a host for tests of fs/ without network: s3_* and cache_* are replaced at
// link time by doubles that answer on the loop that the test runs, and the reply table collects
// answers.
#pragma once

#include "test.h"

#include "base/buf.h"
#include "fs/fs.h"
#include "s3/s3.h"

#define ETAG_1 "\"11111111111111111111111111111111\""
#define ETAG_2 "\"22222222222222222222222222222222-3\""

struct world_object {
    char *key, *etag;
    uint64_t size;
    const char *storage_class;
};

struct world {
    struct loop *loop;
    struct fs *fs;
    struct fs_options options;

    // the store
    struct world_object *objects; // in the order of their keys
    size_t n_objects;
    unsigned page;              // entries of a listing's page
    int head_error, list_error; // what every operation ends with
    int lie; // bytes that an answer to cache_fetch_start says an object has more than it has
    unsigned list_error_after; // pages that are answered before
    bool hold;                 // operations wait for world_run_held
    struct list held;
    unsigned heads, lists, exact_lists, most_lists_at_once, lists_now;

    // the cache
    unsigned loads, background_loads, reads, cancelled_reads, unwants, pressure;
    unsigned lands, cancelled_lands, fetches;
    uint64_t prefetched, unwanted;
    int load_error;

    // the host
    bool keeps_no_pages;
};

extern struct world world; // the doubles have no other way to find it

// Options come from world.options, which world_begin sets to defaults.
void world_begin(void);
void world_start(void);   // makes the file system
void world_restart(void); // as after the death of a worker: what is in progress is lost
void world_end(void);

void world_put(const char *key, uint64_t size, const char *etag);
void world_delete(const char *key);
// Lets everything that is due happen.
void world_run(void);
void world_run_held(void); // what was held up goes on, once

// --- a host ---

enum answer {
    ANSWER_NONE,
    ANSWER_ERROR,
    ANSWER_ENTRY,
    ANSWER_ATTR,
    ANSWER_OPENED,
    ANSWER_DATA,
    ANSWER_LANDED,
    ANSWER_FETCHED,
    ANSWER_STATFS,
    ANSWER_IOCTL,
    ANSWER_DIRENTS,
    ANSWER_XATTR,
};

struct host_name {
    char *name;
    uint64_t cookie;
    struct fs_entry e;
};

struct host_request {
    struct fs_request fs; // first
    enum answer answer;
    int error;
    void (*failed)(void); // NULL, or called from within an answer that is an error
    struct fs_entry entry;
    struct fs_attr attr;
    uint64_t valid_ns;
    struct fs_opened opened;
    struct buf bytes; // data, ioctl, xattr
    uint64_t landed;  // or the size that a fetch told
    struct host_name names[4096];
    unsigned n_names, room; // room: names taken
};

extern const struct fs_reply host_reply;

struct host_request *host_begin(void); // one of a few, used in turn
// Each runs the loop until the answer is there.
struct host_request *host_lookup(uint64_t parent, const char *name);
struct host_request *host_open(uint64_t node);
struct host_request *host_read(uint64_t handle, uint64_t offset, uint32_t size);
struct host_request *host_land(uint64_t handle, uint64_t offset, uint32_t size,
                               struct cache_dest *dest);
struct host_request *host_fetch(const char *key, struct cache_dest *dest);
void host_release(uint64_t handle);
uint64_t host_opendir(uint64_t node);
struct host_request *host_readdir(uint64_t handle, uint64_t offset, bool plus, unsigned room);
void host_releasedir(uint64_t handle);
void host_wait(struct host_request *r);
void host_cancel(struct host_request *r);

// All names of a directory, "a b/ c", read room names at a time.
char *host_list(uint64_t node, bool plus, unsigned room);
// Looks a path up from the root, one component after the other; its node, 0 when not there.
uint64_t host_walk(const char *path);
