// SPDX-License-Identifier: Apache-2.0
// What a listing of one directory said, in the order of its keys, page by page. 40 bytes and the
// name for each entry. No I/O: listing.c fills it, lookup.c and readdir.c read it.
//
// Keys are ordered as bytes with a directory's '/' counted: "a-b" < "a/" < "a0". A name may
// be there twice, as an object and as a prefix far behind it ("a", "a-b", …, "a/"): the directory
// wins, so an object counts only once the listing has come past its name + "/" (it is settled).
#pragma once

#include "base/list.h"
#include "fs/nodes.h"
#include "prefetch/neighbours.h"

enum snap_flag {
    SNAP_DIR = 1,
    SNAP_HIDDEN = 2,   // an object whose name a directory has
    SNAP_DOUBTFUL = 4, // an open found another version: ask the store
    SNAP_ARCHIVED = 8,
};

struct snap_entry {
    uint64_t size;
    uint32_t name; // place in names; an ETag that is text lies behind the name
    uint32_t mtime_s;
    uint8_t md5[16];
    uint16_t etag_parts;
    uint8_t etag_kind, etag_len;
    uint8_t name_len;
    uint8_t flags;
};
_Static_assert(sizeof(struct snap_entry) == 40, "one for each name listed");

struct snapshot {
    struct snap_entry *entries;
    uint32_t n, size;
    struct buf names;
    uint32_t page; // entries before the page that is being added
    bool complete;
    bool truncated;     // it became too large: what comes behind must be listed anew
    bool disordered;    // the store's pages overlap: nothing is settled before it is complete
    uint64_t hidden;    // keys without a name
    uint64_t listed_ns; // when the listing began
    struct neighbours neighbours;

    // for dirs.c and readdir.c
    struct dir *dir;                  // NULL once a newer one has taken its place
    struct list lru;                  // of all
    struct list streams;              // directory handles that read it
    uint64_t charged, charged_hidden; // as counted in totals
    uint32_t uses;                    // answers given from it
    uint32_t walk_last;               // entry of the child listed last, plus one
    uint32_t walk_run;                // children listed in order
};

struct snapshot *snapshot_new(uint64_t now_ns);
void snapshot_free(struct snapshot *s); // NULL is allowed
uint64_t snapshot_bytes(const struct snapshot *s);

// Adding a page. version: NULL for a directory. -ENOMEM.
int snapshot_add(struct snapshot *s, const char *name, size_t len,
                 const struct node_version *version);
void snapshot_page_end(struct snapshot *s); // sorts what was added since the last one
void snapshot_complete(struct snapshot *s);
// Forgets the first k entries.
void snapshot_drop_front(struct snapshot *s, uint32_t k);

// --- reading ---

const char *snapshot_name(const struct snapshot *s, uint32_t i); // entries[i].name_len bytes
void snapshot_version(const struct snapshot *s, uint32_t i, struct node_version *ret);
// Gives an entry another version (one of its ETag's kind that is not text), and its doubts go.
void snapshot_update(struct snapshot *s, uint32_t i, const struct node_version *v);

// Whether entry i and all before it are known for good.
bool snapshot_settled(const struct snapshot *s, uint32_t i);

enum snap_answer { SNAP_THERE, SNAP_ABSENT, SNAP_UNKNOWN };
// What the listing says of a name so far; *ret_i is set for SNAP_THERE.
enum snap_answer snapshot_lookup(const struct snapshot *s, const char *name, size_t len,
                                 uint32_t *ret_i);
// The first entry whose key ("name", "name/") is behind this one.
uint32_t snapshot_behind(const struct snapshot *s, const char *key, size_t len);

// --- places in it, as a host keeps them ---

// Cookies hold a number and a hash of the name, so that a place means the same entry in a listing
// made later. 0 is the beginning; 1 and 2 are behind "." and "..".
#define COOKIE_DOT    1
#define COOKIE_DOTDOT 2

uint64_t snapshot_cookie(const struct snapshot *s, uint32_t i, uint64_t base);
// The entry behind a cookie's; false when the entry is not here (any more).
bool snapshot_seek(const struct snapshot *s, uint64_t cookie, uint64_t base, uint32_t *ret_next);
static inline uint64_t cookie_number(uint64_t cookie)
{
    return cookie >> 32;
}
