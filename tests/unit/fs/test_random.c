// SPDX-License-Identifier: Apache-2.0
// A host that does anything in any order, a store that changes and fails under it, workers that
// die: every request is answered once, every open file gives the bytes of one version, and when the
// host has let go of everything nothing is left. What goes wrong in memory the sanitizers see.
#include "world.h"

#include "base/log.h"
#include "base/rand.h"
#include "wire/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS   15000
#define PENDING 12
#define KNOWN   64

enum kind { LOOKUP, OPEN, READ, RELEASE, OPENDIR, READDIR, RELEASEDIR, GETXATTR, IOCTL, KINDS };

struct pending {
    struct host_request r;
    enum kind kind;
    bool used, plus;
    struct os2g_plan_request *plan;
};

struct known {
    uint64_t id, count;
};

static struct pending *pending;
static struct known nodes[KNOWN], files[KNOWN], dirs[KNOWN];
static uint64_t cookies[KNOWN];
static struct rand rnd;
static unsigned answers[ANSWER_XATTR + 1]; // of each kind, so that the test knows what it did

static const char *const names[] = {"a",  "a-b",  "b",     "c?",      "d", "e", "sub",    "f",
                                    "gg", "\xff", ".os2g", "control", "h", "i", "no such"};

static unsigned below(unsigned n)
{
    return (unsigned)rand_below(&rnd, n);
}

// Counts one more of id; false when there is no room for it.
static bool keep(struct known *list, uint64_t id)
{
    struct known *free_one = NULL;

    for (unsigned i = 0; i < KNOWN; i++) {
        if (list[i].id == id) {
            list[i].count++;
            return true;
        }
        if (!list[i].id)
            free_one = &list[i];
    }
    if (free_one)
        *free_one = (struct known){id, 1};
    return free_one != NULL;
}

// One of the list, else a node that is always there; or nonsense.
static uint64_t any(const struct known *list)
{
    if (below(50) == 0)
        return rand_u64(&rnd) >> below(64);
    for (int i = 0; i < 6; i++) {
        const struct known *k = &list[below(KNOWN)];

        if (k->id)
            return k->id;
    }
    return 1 + below(3);
}

static void take_reference(uint64_t node)
{
    if (!keep(nodes, node))
        fs_ops()->forget(world.fs, node, 1);
}

// --- answers ---

static void take_answer(struct pending *p)
{
    struct host_request *r = &p->r;

    answers[r->answer]++;
    if (r->answer == ANSWER_ENTRY && r->entry.attr.node)
        take_reference(r->entry.attr.node);
    if (r->answer == ANSWER_OPENED) {
        struct known *list = p->kind == OPENDIR ? dirs : files;

        if (!keep(list, r->opened.handle))
            fs_ops()->unopen(world.fs, r->opened.handle);
    }
    for (unsigned i = 0; i < r->n_names; i++) {
        const char *name = r->names[i].name;

        cookies[below(KNOWN)] = r->names[i].cookie;
        // with attributes it is a reference; without, only a number
        if (p->plus && strcmp(name, ".") && strcmp(name, "..") && r->names[i].e.attr.node)
            take_reference(r->names[i].e.attr.node);
        free(r->names[i].name);
    }
    buf_free(&r->bytes);
    free(p->plan);
    p->used = false;
}

static void collect(void)
{
    for (unsigned i = 0; i < PENDING; i++)
        if (pending[i].used && pending[i].r.answer != ANSWER_NONE)
            take_answer(&pending[i]);
}

static void settle(void)
{
    world.hold = false;
    for (int i = 0; i < 50; i++) {
        world_run_held();
        world_run();
    }
    collect();
    for (unsigned i = 0; i < PENDING; i++)
        assert_false(pending[i].used);
}

// --- requests ---

static struct pending *new_request(enum kind kind)
{
    static uint64_t unique = 1000000;

    for (unsigned i = 0; i < PENDING; i++) {
        struct pending *p = &pending[i];

        if (p->used)
            continue;
        memset(&p->r, 0, offsetof(struct host_request, names));
        p->r.n_names = 0;
        p->r.room = 1 + below(30);
        p->r.fs = (struct fs_request){.reply = &host_reply, .unique = ++unique};
        p->r.fs.replayed = below(10) == 0;
        p->kind = kind;
        p->used = true;
        p->plan = NULL;
        return p;
    }
    return NULL;
}

static void send_ioctl(struct pending *p)
{
    static const char paths[] =
        "sub/a\0sub/b\0a\0d\0sub/nothing\0sub/sub/x\0sub/e\0sub/f\0f\0b\0c?\0"
        "sub/gg\0sub/h\0sub/i\0e\0gg\0h\0i\0sub/d\0a-b";

    p->plan = xcalloc(1, sizeof(*p->plan));
    p->plan->op = below(6);
    p->plan->window_bytes = below(2) ? 0 : 1000;
    if (p->plan->op == OS2G_PLAN_ADD) {
        p->plan->len = below(10) ? sizeof(paths) : below(sizeof(paths));
        memcpy(p->plan->data, paths, p->plan->len);
    }
    fs_ops()->ioctl(world.fs, &p->r.fs, 3, any(files), OS2G_IOC_PLAN, p->plan, sizeof(*p->plan),
                    sizeof(*p->plan));
}

static void send_one(void)
{
    struct pending *p = new_request((enum kind)below(KINDS));
    const struct fs_ops *ops = fs_ops();
    struct known *k;

    if (!p)
        return;
    switch (p->kind) {
    case LOOKUP:
        p->r.fs.uid = 1;
        {
            const char *name = names[below(ARRAY_LEN(names))];

            ops->lookup(world.fs, &p->r.fs, any(nodes), name, strlen(name));
        }
        break;
    case OPEN:
        ops->open(world.fs, &p->r.fs, any(nodes), 0);
        break;
    case READ:
        ops->read(world.fs, &p->r.fs, any(files), rand_u64(&rnd) >> (36 + below(28)),
                  below(1 << 20));
        break;
    case OPENDIR:
        ops->opendir(world.fs, &p->r.fs, any(nodes));
        break;
    case READDIR:
        p->plus = below(2);
        ops->readdir(world.fs, &p->r.fs, any(dirs), below(3) ? cookies[below(KNOWN)] : below(3),
                     p->plus);
        break;
    case GETXATTR:
        ops->getxattr(world.fs, &p->r.fs, any(nodes),
                      below(2) ? "user.os2g.content_type" : "user.os2g.etag");
        break;
    case IOCTL:
        send_ioctl(p);
        break;
    case RELEASE:
        k = &files[below(KNOWN)]; // often none
        ops->release(world.fs, &p->r.fs, k->id);
        *k = (struct known){0};
        break;
    default:
        k = &dirs[below(KNOWN)];
        p->kind = RELEASEDIR;
        ops->releasedir(world.fs, &p->r.fs, k->id);
        *k = (struct known){0};
        break;
    }
}

static void forget_some(void)
{
    struct known *k = &nodes[below(KNOWN)];
    uint64_t n = k->id ? 1 + rand_below(&rnd, k->count) : 0;

    if (!k->id)
        return;
    fs_ops()->forget(world.fs, k->id, n);
    k->count -= n;
    if (!k->count)
        *k = (struct known){0};
}

static void interrupt_one(void)
{
    struct pending *p = &pending[below(PENDING)];

    if (p->used && p->r.answer == ANSWER_NONE && p->r.fs.cancel)
        host_cancel(&p->r);
}

static void change_store(void)
{
    static const char *const etags[] = {ETAG_1, ETAG_2, "\"odd\"", ""};
    char key[32];

    snprintf(key, sizeof(key), "%s%s", below(2) ? "sub/" : "", names[below(9)]);
    if (below(4) == 0)
        strcat(key, "/x");
    world_put(key, below(3) ? below(300000) : (uint64_t)below(40) << 20,
              etags[below(ARRAY_LEN(etags))]);
}

static void one_step(void)
{
    switch (below(40)) {
    case 0:
        change_store();
        break;
    case 1:
        world.head_error = below(9) ? 0 : below(2) ? -EIO : -EACCES;
        world.list_error = below(9) ? 0 : below(2) ? -EIO : -EACCES;
        world.load_error = below(9) ? 0 : -EIO;
        world.pressure = below(101);
        break;
    case 2:
        world.hold = !world.hold;
        break;
    case 3:
    case 4:
        interrupt_one();
        break;
    case 5:
    case 6:
        forget_some();
        break;
    case 7:
    case 8:
    case 9:
        world_run_held();
        break;
    case 10:
        if (below(40) == 0) {
            settle();
            world_restart();
        }
        break;
    default:
        send_one();
        break;
    }
    uv_run(loop_uv(world.loop), UV_RUN_NOWAIT);
    collect();
}

static void let_go_of_everything(void)
{
    settle();
    for (unsigned i = 0; i < KNOWN; i++) {
        if (files[i].id)
            host_release(files[i].id);
        if (dirs[i].id)
            host_releasedir(dirs[i].id);
        if (nodes[i].id)
            fs_ops()->forget(world.fs, nodes[i].id, nodes[i].count);
    }
    memset(nodes, 0, sizeof(nodes));
    memset(files, 0, sizeof(files));
    memset(dirs, 0, sizeof(dirs));
    settle();
}

static void any_host_and_any_store_leave_nothing_behind(void **state)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct fs_stats before, after;

        rand_seed(&rnd, seed);
        world_begin();
        world.options.metadata_ttl_ns = seed % 2 ? 60000000000 : 3000000;
        world.options.metadata_memory = seed > 2 ? 4096 : 0;
        world.options.direct_io = seed == 4;
        world.page = 3;
        for (int i = 0; i < 30; i++)
            change_store();
        world_start();
        fs_stats_read(world.fs, &before);
        for (int i = 0; i < STEPS; i++)
            one_step();
        let_go_of_everything();
        fs_stats_read(world.fs, &after);
        assert_int_equal(after.handles, 0);
        assert_int_equal(after.nodes, before.nodes);
        world_end();
    }
    print_message("# %u entries, %u opened, %u read, %u directories, %u plans, %u errors\n",
                  answers[ANSWER_ENTRY], answers[ANSWER_OPENED], answers[ANSWER_DATA],
                  answers[ANSWER_DIRENTS], answers[ANSWER_IOCTL], answers[ANSWER_ERROR]);
    assert_true(answers[ANSWER_ENTRY] > 1000 && answers[ANSWER_OPENED] > 1000 &&
                answers[ANSWER_DATA] > 1000 && answers[ANSWER_DIRENTS] > 1000 &&
                answers[ANSWER_IOCTL] > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_host_and_any_store_leave_nothing_behind),
    };

    // every failure of the store is asked for: no lines about them
    assert(log_configure("error") == 0);
    pending = xcalloc(PENDING, sizeof(*pending));
    return cmocka_run_group_tests_name("fs/random", tests, NULL, NULL);
}
