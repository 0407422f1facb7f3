// SPDX-License-Identifier: Apache-2.0
// Directories in use, by path, and their snapshots: one listing in flight for each however many
// ask, all of them within metadata_memory, least recently used first out.
#pragma once

#include "fs/impl.h"
#include "fs/listing.h"

struct dir {
    struct hmap_link link;
    struct fs *fs;
    struct list idle;        // in fs->idle_dirs
    struct snapshot *snap;   // may be incomplete: being listed, or too large
    struct snapshot *next;   // being listed while snap is still good
    struct listing *listing; // fills next, else snap
    bool large;              // it was: lookups alone are no reason to list it again
    bool prelisted;          // nobody has asked yet for what is being listed
    struct list waiters;     // for the next page
    unsigned cold;           // lookups that had to ask the store, since cold_since_ns
    uint64_t cold_since_ns;
    struct list colds; // cold.c: in progress
    unsigned users;    // whoever keeps a pointer
    size_t len;
    char path[]; // below the export: "" or "a/b/"
};

// A reference is taken; dir_put gives it back.
struct dir *dir_get(struct fs *fs, const char *path, size_t len);
struct dir *dir_of_node(struct fs *fs, uint32_t node);
void dir_put(struct dir *d);
struct dir *dir_find(struct fs *fs, const char *path, size_t len); // no reference; or NULL

// The snapshot that answers may come from now: listed (or being listed) within the TTL, or since
// since_ns. NULL if there is none.
struct snapshot *dir_fresh(struct dir *d, uint64_t since_ns);
// dir_fresh, or a listing is started.
struct snapshot *dir_list(struct dir *d, uint64_t since_ns);
// Ahead of being asked; nothing happens when it is at hand or memory is short.
void dir_prelist(struct dir *d);
// A lookup in it had to ask the store: after several a snapshot is worth its listing.
void dir_count_cold(struct dir *d);
// Time a name taken from s stays valid for the host.
uint64_t dir_valid_ns(const struct fs *fs, const struct snapshot *s);

// Calls wake once: error 0 after the next page of the listing in flight (or its end).
struct dir_waiter {
    struct list link;
    void (*wake)(struct dir_waiter *w, int error);
};
void dir_wait(struct dir *d, struct dir_waiter *w); // d->listing is there
void dir_wait_cancel(struct dir_waiter *w);

// A directory handle reads s by this link: alone once s has been dropped.
void dirs_attach(struct snapshot *s, struct list *stream);
void dirs_detach(struct fs *fs, struct snapshot *s, struct list *stream);

// --- walk.c ---

// A program begins to read directory path.
void walk_note(struct fs *fs, const char *path, size_t len);

void dirs_init(struct fs *fs);
void dirs_stop(struct fs *fs); // ends the listings in flight
void dirs_fini(struct fs *fs); // nothing is in flight, nobody holds a reference
