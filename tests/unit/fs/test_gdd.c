// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include "cache/dest.h"
#include "fs/gdd_leases.h"
#include "fs/handles.h"
#include "fs/nodes.h"
#include "wire/gdd.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY (1 << 20)

// --- a host's GPU memory ---

static uint8_t memory[MEMORY];
static bool memory_gone;
static unsigned landings; // that were not freed

struct landing {
    struct cache_dest dest;
    struct iovec iov;
};

static int put(struct cache_dest *d, uint64_t at, const struct iovec *iov, int n,
               struct cache_put *p)
{
    uint8_t *to = (uint8_t *)d->iov[0].iov_base + at;

    assert_false(memory_gone);
    if (d->cut)
        return -ECANCELED;
    for (int i = 0; i < n; i++) {
        memcpy(to, iov[i].iov_base, iov[i].iov_len);
        to += iov[i].iov_len;
    }
    return 0;
}

static const struct cache_dest_ops dest_ops = {.put = put};

static int gpu_size(struct fs_gpu *g, uint64_t *ret)
{
    *ret = MEMORY;
    return memory_gone ? -ENXIO : 0;
}

static int gpu_landing_new(struct fs_gpu *g, uint64_t offset, uint64_t len, struct cache_dest **ret)
{
    struct landing *l;

    if (memory_gone)
        return -ENXIO;
    assert_true(offset <= MEMORY && len <= MEMORY - offset);
    l = xcalloc(1, sizeof(*l));
    l->iov = (struct iovec){memory + offset, len};
    l->dest = (struct cache_dest){
        .ops = &dest_ops, .len = len, .direct = true, .iov = &l->iov, .n_iov = 1};
    landings++;
    *ret = &l->dest;
    return 0;
}

static void gpu_landing_free(struct cache_dest *d)
{
    landings--;
    free(container_of(d, struct landing, dest));
}

static uint64_t another_hosts; // handle

static bool gpu_holds_file(struct fs_gpu *g, uint64_t handle)
{
    return handle != another_hosts;
}

static struct fs_gpu gpu, other_gpu;
static uint64_t file; // .os2g/gdd, opened
static uint64_t object;

// --- requests ---

static struct host_request *open_as(struct fs_gpu *g, uint32_t uid, uint32_t gid)
{
    struct host_request *r = host_begin();

    r->fs.gpu = g;
    r->fs.uid = uid;
    r->fs.gid = gid;
    fs_ops()->open(world.fs, &r->fs, NODE_GDD_FILE, 0);
    host_wait(r);
    return r;
}

static uint64_t open_file(void)
{
    struct host_request *r = open_as(&gpu, 1000, 1001);

    assert_int_equal(r->answer, ANSWER_OPENED);
    return r->opened.handle;
}

static struct host_request *start_ioctl(uint64_t handle, uint32_t cmd, const void *in)
{
    struct host_request *r = host_begin();
    size_t size = _IOC_SIZE(cmd);

    r->fs.gpu = &gpu;
    fs_ops()->ioctl(world.fs, &r->fs, NODE_GDD_FILE, handle, cmd, in,
                    _IOC_DIR(cmd) & _IOC_WRITE ? size : 0, _IOC_DIR(cmd) & _IOC_READ ? size : 0);
    return r;
}

static struct host_request *ioctl_(uint64_t handle, uint32_t cmd, const void *in)
{
    struct host_request *r = start_ioctl(handle, cmd, in);

    host_wait(r);
    return r;
}

static int result_of(const struct host_request *r)
{
    assert_true(r->answer == ANSWER_IOCTL || r->answer == ANSWER_ERROR);
    return r->error;
}

static int lease(uint64_t handle, uint64_t offset, uint64_t size)
{
    struct os2g_gdd_lease l = {.offset = offset, .size = size};

    return result_of(ioctl_(handle, OS2G_IOC_GDD_LEASE, &l));
}

static uint64_t lease_anywhere(uint64_t handle, uint64_t size)
{
    struct os2g_gdd_lease l = {.offset = OS2G_GDD_ANYWHERE, .size = size};
    struct host_request *r = ioctl_(handle, OS2G_IOC_GDD_LEASE, &l);

    assert_int_equal(result_of(r), 0);
    memcpy(&l, r->bytes.data, sizeof(l));
    assert_int_equal(l.memory_size, MEMORY);
    return l.offset;
}

static struct host_request *start_unlease(uint64_t handle, uint64_t offset)
{
    struct os2g_gdd_lease l = {.offset = offset};

    return start_ioctl(handle, OS2G_IOC_GDD_UNLEASE, &l);
}

static int submit(uint64_t handle, struct os2g_gdd_entry e, const char *key)
{
    uint8_t bytes[sizeof(struct os2g_gdd_submit) + sizeof(e) + 64] = {0};
    size_t len = sizeof(struct os2g_gdd_submit) + sizeof(e);

    memcpy(bytes, &(struct os2g_gdd_submit){.n = 1}, sizeof(struct os2g_gdd_submit));
    if (key) {
        e.key_len = (uint32_t)strlen(key);
        memcpy(bytes + len, key, e.key_len);
    }
    memcpy(bytes + sizeof(struct os2g_gdd_submit), &e, sizeof(e));
    len += (e.key_len + 7) & ~7u;
    return result_of(ioctl_(handle, OS2G_IOC_GDD_SUBMIT(len), bytes));
}

#define REAP_ROOM  8
#define REAP_BYTES (sizeof(struct os2g_gdd_reap) + REAP_ROOM * sizeof(struct os2g_gdd_completion))

static struct host_request *start_reap(uint64_t handle, uint32_t min, uint32_t timeout_ms)
{
    uint8_t bytes[REAP_BYTES] = {0};

    memcpy(bytes, &(struct os2g_gdd_reap){.min = min, .timeout_ms = timeout_ms},
           sizeof(struct os2g_gdd_reap));
    return start_ioctl(handle, OS2G_IOC_GDD_REAP(REAP_BYTES), bytes);
}

struct reaped {
    struct os2g_gdd_reap head;
    struct os2g_gdd_completion c[REAP_ROOM];
};

static struct reaped reaped_of(struct host_request *r)
{
    struct reaped got = {0};

    assert_int_equal(result_of(r), 0);
    assert_true(r->bytes.len >= sizeof(got.head) && r->bytes.len <= sizeof(got));
    memcpy(&got, r->bytes.data, r->bytes.len);
    assert_int_equal(r->bytes.len, sizeof(got.head) + got.head.n * sizeof(got.c[0]));
    return got;
}

static struct reaped reap(uint64_t handle, uint32_t min)
{
    struct host_request *r = start_reap(handle, min, 1000);

    host_wait(r);
    return reaped_of(r);
}

static int begin(void **state)
{
    world_begin();
    world_put("a/one", 100000, ETAG_1);
    world_put("a/two", 5000, ETAG_1);
    gpu = (struct fs_gpu){.size = gpu_size,
                          .landing_new = gpu_landing_new,
                          .landing_free = gpu_landing_free,
                          .holds_file = gpu_holds_file,
                          .host = 7};
    other_gpu = gpu;
    other_gpu.host = 8;
    memory_gone = false;
    another_hosts = 0;
    memset(memory, 0xee, sizeof(memory));
    world_start();
    file = open_file();
    object = host_open(host_walk("a/one"))->opened.handle;
    return 0;
}

static int end(void **state)
{
    world_end();
    assert_int_equal(landings, 0);
    return 0;
}

// --- the file ---

static void file_is_its_owners_alone(void **state)
{
    struct host_request *r = host_lookup(host_walk(".os2g"), OS2G_GDD_FILE);

    assert_int_equal(r->entry.attr.mode, S_IFREG | 0600);
    assert_int_equal(open_as(&gpu, 1000, 1001)->answer, ANSWER_OPENED);
    assert_int_equal(open_as(&gpu, 0, 0)->answer, ANSWER_OPENED);
    assert_int_equal(open_as(&gpu, 1002, 1001)->error, -EACCES);
}

static void file_is_a_groups_where_that_was_said(void **state)
{
    world.options.gdd_gid = 44;
    world_restart();
    assert_int_equal(host_lookup(host_walk(".os2g"), OS2G_GDD_FILE)->entry.attr.mode,
                     S_IFREG | 0660);
    assert_int_equal(open_as(&gpu, 1002, 44)->answer, ANSWER_OPENED);
    assert_int_equal(open_as(&gpu, 1002, 1001)->error, -EACCES);
    // in a further group, as its kernel has found
    gpu.checks_modes = true;
    assert_int_equal(open_as(&gpu, 1002, 1001)->answer, ANSWER_OPENED);
}

static void directory_shows_it(void **state)
{
    char *names = host_list(host_walk(".os2g"), true, 1);

    assert_string_equal(names, "control gdd stalls");
    free(names);
}

static void host_without_such_memory_leases_nothing(void **state)
{
    struct os2g_gdd_lease l = {.offset = 0, .size = 4096};
    uint64_t handle = open_as(NULL, 0, 0)->opened.handle;
    struct host_request *r = host_begin();

    fs_ops()->ioctl(world.fs, &r->fs, NODE_GDD_FILE, handle, OS2G_IOC_GDD_LEASE, &l, sizeof(l),
                    sizeof(l));
    host_wait(r);
    assert_int_equal(result_of(r), -ENXIO);
}

static void another_host_cannot_use_it(void **state)
{
    struct os2g_gdd_lease l = {.offset = 0, .size = 4096};
    struct host_request *r = host_begin();

    r->fs.gpu = &other_gpu;
    fs_ops()->ioctl(world.fs, &r->fs, NODE_GDD_FILE, file, OS2G_IOC_GDD_LEASE, &l, sizeof(l),
                    sizeof(l));
    host_wait(r);
    assert_int_equal(result_of(r), -EBADF);
}

// --- leases ---

static void leases_do_not_overlap(void **state)
{
    uint64_t second = open_file();

    assert_int_equal(lease(file, 8192, 8192), 0);
    assert_int_equal(lease(second, 8192, 8192), -EBUSY);
    assert_int_equal(lease(second, 4096, 8192), -EBUSY);
    assert_int_equal(lease(second, 0, MEMORY), -EBUSY);
    assert_int_equal(lease(file, 12288, 4096), -EBUSY);
    assert_int_equal(lease(second, 4096, 4096), 0);
    assert_int_equal(lease(second, 16384, 4096), 0);
    host_release(file);
    assert_int_equal(lease(second, 8192, 8192), 0);
}

static void other_hosts_have_other_memory(void **state)
{
    struct os2g_gdd_lease l = {.offset = 0, .size = 4096};
    uint64_t theirs = open_as(&other_gpu, 0, 0)->opened.handle;
    struct host_request *r = host_begin();

    assert_int_equal(lease(file, 0, 4096), 0);
    r->fs.gpu = &other_gpu;
    fs_ops()->ioctl(world.fs, &r->fs, NODE_GDD_FILE, theirs, OS2G_IOC_GDD_LEASE, &l, sizeof(l),
                    sizeof(l));
    host_wait(r);
    assert_int_equal(result_of(r), 0);
}

static void place_is_found_where_there_is_room(void **state)
{
    assert_int_equal(lease(file, 4096, 4096), 0);
    assert_int_equal(lease_anywhere(file, 4096), 0);
    assert_int_equal(lease_anywhere(file, 8192), 8192);
    assert_int_equal(lease(file, OS2G_GDD_ANYWHERE, MEMORY), -ENOSPC);
}

static void lease_that_cannot_be_is_refused(void **state)
{
    assert_int_equal(lease(file, 0, 0), -EINVAL);
    assert_int_equal(lease(file, 100, 4096), -EINVAL);
    assert_int_equal(lease(file, 0, 100), -EINVAL);
    assert_int_equal(lease(file, 0, MEMORY + 4096), -EINVAL);
    assert_int_equal(lease(file, UINT64_MAX - 4095, 8192), -EINVAL);
    assert_int_equal(lease(file, OS2G_GDD_ANYWHERE, UINT64_MAX - 4095), -EINVAL);
    for (int i = 0; i < OS2G_GDD_LEASES; i++)
        assert_int_equal(lease(file, (uint64_t)i * 4096, 4096), 0);
    assert_int_equal(lease(file, OS2G_GDD_LEASES * 4096, 4096), -ENOSPC);
}

static void leases_outlive_a_worker(void **state)
{
    assert_int_equal(lease(file, 8192, 8192), 0);
    assert_int_equal(lease(file, 65536, 4096), 0);
    world_restart();
    assert_int_equal(lease(open_file(), 12288, 4096), -EBUSY);
    assert_int_equal(
        submit(file, (struct os2g_gdd_entry){.tag = 1, .len = 4096, .place = 65536}, "a/two"), 0);
    assert_int_equal(reap(file, 1).c[0].result, -EFBIG);
}

static void lease_asked_for_again_by_the_next_worker_is_the_same(void **state)
{
    struct os2g_gdd_lease l = {.offset = OS2G_GDD_ANYWHERE, .size = 8192};
    struct host_request *r = ioctl_(file, OS2G_IOC_GDD_LEASE, &l);
    uint64_t unique = r->fs.unique;

    world_restart();
    r = host_begin();
    r->fs.gpu = &gpu;
    r->fs.unique = unique;
    r->fs.replayed = true;
    fs_ops()->ioctl(world.fs, &r->fs, NODE_GDD_FILE, file, OS2G_IOC_GDD_LEASE, &l, sizeof(l),
                    sizeof(l));
    host_wait(r);
    assert_int_equal(result_of(r), 0);
    assert_int_equal(lease_anywhere(file, 4096), 8192); // nothing was leased twice
}

static void store_that_was_cut_short_leaves_what_was_there(void **state)
{
    _Alignas(8) uint8_t room[HANDLE_ROOM] = {0};
    struct gdd_leases l = {.host = 3, .n = 1, .lease = {{4096, 8192}}}, got;

    gdd_leases_store(room, &l);
    l.lease[l.n++] = (struct gdd_lease){65536, 4096};
    gdd_leases_store(room, &l);
    gdd_leases_load(room, &got);
    assert_int_equal(got.n, 2);
    memset(room + sizeof(room) / 2, 0, 4); // the number of the one that is written next
    gdd_leases_load(room, &got);
    assert_int_equal(got.n, 2);
    memset(room, 0xff, sizeof(room));
    gdd_leases_load(room, &got);
    assert_true(got.n <= OS2G_GDD_LEASES); // whatever is there
}

// --- landing ---

static void assert_landed(uint64_t place, uint64_t offset, uint64_t len)
{
    for (uint64_t i = 0; i < len; i++)
        assert_int_equal(memory[place + i], (uint8_t)(offset + i));
}

static void object_lands_by_its_key(void **state)
{
    struct reaped got;

    lease(file, 4096, 8192);
    assert_int_equal(
        submit(file, (struct os2g_gdd_entry){.tag = 77, .len = 8000, .place = 4100}, "a/two"), 0);
    got = reap(file, 1);
    assert_int_equal(got.head.n, 1);
    assert_int_equal(got.c[0].tag, 77);
    assert_int_equal(got.c[0].result, 5000);
    assert_int_equal(got.c[0].size, 5000);
    assert_landed(4100, 0, 5000);
    assert_int_equal(memory[4099], 0xee);
    assert_int_equal(memory[9100], 0xee);
}

static uint64_t id_of(uint64_t handle)
{
    struct host_request *r = ioctl_(handle, OS2G_IOC_GDD_ID, NULL);
    struct os2g_gdd_id id;

    assert_int_equal(result_of(r), 0);
    memcpy(&id, r->bytes.data, sizeof(id));
    assert_int_equal(id.size, 100000);
    return id.id;
}

static void bytes_of_an_open_object_land(void **state)
{
    struct reaped got;

    lease(file, 0, 65536);
    assert_int_equal(
        submit(file,
               (struct os2g_gdd_entry){
                   .tag = 1, .id = id_of(object), .offset = 99000, .len = 4096, .place = 8192},
               NULL),
        0);
    got = reap(file, 1);
    assert_int_equal(got.c[0].result, 1000); // short at the object's end
    assert_landed(8192, 99000, 1000);
    assert_int_equal(memory[8192 + 1000], 0xee);
}

static void errors_are_those_of_the_object(void **state)
{
    lease(file, 0, 65536);
    submit(file, (struct os2g_gdd_entry){.tag = 1, .len = 4096}, "a/none");
    submit(file, (struct os2g_gdd_entry){.tag = 2, .len = 4096}, "a/two");
    submit(file, (struct os2g_gdd_entry){.tag = 3, .len = 4096, .id = 12345}, NULL);
    for (int i = 0; i < 3; i++) {
        struct reaped got = reap(file, 1);

        if (got.c[0].tag == 1)
            assert_int_equal(got.c[0].result, -ENOENT);
        if (got.c[0].tag == 2) {
            assert_int_equal(got.c[0].result, -EFBIG);
            assert_int_equal(got.c[0].size, 5000);
        }
        if (got.c[0].tag == 3)
            assert_int_equal(got.c[0].result, -EBADF);
    }
}

static void what_another_host_has_opened_is_not_read(void **state)
{
    lease(file, 0, 65536);
    another_hosts = object;
    submit(file, (struct os2g_gdd_entry){.tag = 1, .len = 4096, .id = object}, NULL);
    assert_int_equal(reap(file, 1).c[0].result, -EBADF);
    assert_int_equal(world.reads + world.lands, 0);
}

static void only_leased_places_are_landed_in(void **state)
{
    const struct os2g_gdd_entry bad[] = {
        {.len = 4096, .place = 0},
        {.len = 8192 + 1, .place = 4096},
        {.len = 4096, .place = 4095},
        {.len = UINT64_MAX, .place = 4096},
        {.len = 1, .place = UINT64_MAX},
        {.len = 0, .place = 4096},
        {.len = 1, .place = 4096 + 8192},
        {.len = 8192, .place = 65536 - 4096},
        {.len = 1, .place = 4096, .flags = 1},
    };

    lease(file, 4096, 8192);
    lease(file, 65536, 4096);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(submit(file, bad[i], "a/two"), -EINVAL);
    assert_int_equal(reap(file, 1).head.n, 0);
    assert_int_equal(world.fetches + world.lands + world.reads, 0);
}

static void malformed_submits_are_refused(void **state)
{
    uint8_t bytes[256] = {0};
    struct os2g_gdd_submit head = {.n = 2};
    struct os2g_gdd_entry e = {.len = 1, .key_len = 100};

    lease(file, 0, 4096);
    memcpy(bytes, &head, sizeof(head));
    memcpy(bytes + sizeof(head), &e, sizeof(e));
    for (unsigned len = 0; len < sizeof(bytes); len += 8) // two entries never fit
        assert_int_equal(result_of(ioctl_(file, OS2G_IOC_GDD_SUBMIT(len), bytes)), -EINVAL);
    assert_int_equal(result_of(ioctl_(file, OS2G_IOC_GDD_REAP(16), bytes)), -EINVAL);
    assert_int_equal(result_of(ioctl_(file, _IOWR('o', 99, int), bytes)), -ENOTTY);
}

// --- waiting ---

static void reap_waits_until_one_has_ended(void **state)
{
    struct host_request *r;

    lease(file, 0, 65536);
    world.hold = true;
    submit(file, (struct os2g_gdd_entry){.tag = 5, .len = 8000}, "a/two");
    r = start_reap(file, 1, 1000);
    world_run();
    assert_int_equal(r->answer, ANSWER_NONE);
    world_run_held();
    host_wait(r);
    assert_int_equal(reaped_of(r).c[0].tag, 5);
}

static void reap_does_not_wait_for_what_is_not_under_way(void **state)
{
    lease(file, 0, 65536);
    submit(file, (struct os2g_gdd_entry){.tag = 5, .len = 8000}, "a/two");
    assert_int_equal(reap(file, 3).head.n, 1);
    assert_int_equal(reap(file, 3).head.n, 0);
}

static void reap_waits_no_longer_than_it_may(void **state)
{
    struct host_request *r;

    lease(file, 0, 65536);
    world.hold = true;
    submit(file, (struct os2g_gdd_entry){.tag = 5, .len = 8000}, "a/two");
    r = start_reap(file, 1, 20);
    for (int i = 0; i < 200 && r->answer == ANSWER_NONE; i++) {
        usleep(1000);
        uv_run(loop_uv(world.loop), UV_RUN_NOWAIT);
    }
    assert_int_equal(reaped_of(r).head.n, 0);
}

static void reap_can_be_interrupted(void **state)
{
    struct host_request *r;

    lease(file, 0, 65536);
    world.hold = true;
    submit(file, (struct os2g_gdd_entry){.tag = 5, .len = 8000}, "a/two");
    r = start_reap(file, 1, 1000);
    host_cancel(r);
    assert_int_equal(result_of(r), -EINTR);
}

static void next_worker_tells_another_epoch(void **state)
{
    uint64_t before;

    lease(file, 0, 65536);
    before = reap(file, 0).head.epoch;
    submit(file, (struct os2g_gdd_entry){.tag = 5, .len = 8000}, "a/two");
    world_restart();
    assert_int_not_equal(reap(file, 1).head.epoch, before);
}

// --- giving up ---

static void memory_that_is_gone_ends_reads_and_works_when_it_is_back(void **state)
{
    lease(file, 0, 65536);
    memory_gone = true;
    submit(file, (struct os2g_gdd_entry){.tag = 1, .len = 8000}, "a/two");
    assert_int_equal(reap(file, 1).c[0].result, -ENXIO);
    memory_gone = false;
    submit(file, (struct os2g_gdd_entry){.tag = 2, .len = 8000}, "a/two");
    assert_int_equal(reap(file, 1).c[0].result, 5000);
}

static void unlease_waits_until_nothing_lands_any_more(void **state)
{
    struct host_request *r;
    struct reaped got;

    lease(file, 0, 65536);
    world.hold = true;
    submit(file, (struct os2g_gdd_entry){.tag = 1, .len = 8000}, "a/two");
    r = start_unlease(file, 0); // no loop is run from here on
    assert_int_equal(r->answer, ANSWER_NONE);
    assert_int_equal(submit(file, (struct os2g_gdd_entry){.tag = 2, .len = 8000}, "a/two"),
                     -EINVAL);
    assert_int_equal(lease(open_file(), 0, 4096), -EBUSY);
    world.hold = false;
    world_run_held();
    host_wait(r);
    assert_int_equal(result_of(r), 0);
    got = reap(file, 1);
    assert_int_equal(got.c[0].result, -ECANCELED);
    assert_int_equal(memory[0], 0xee);
    assert_int_equal(lease(open_file(), 0, 4096), 0);
    r = start_unlease(file, 0);
    assert_int_equal(result_of(r), -ENOENT);
}

static void closed_file_keeps_its_place_until_nothing_lands_there(void **state)
{
    uint64_t second = open_file();

    lease(file, 0, 65536);
    world.hold = true;
    submit(file, (struct os2g_gdd_entry){.tag = 1, .len = 8000}, "a/two");
    host_release(file);
    assert_int_equal(lease(second, 0, 4096), -EBUSY);
    world.hold = false;
    world_run_held();
    world_run();
    assert_int_equal(memory[0], 0xee);
    assert_int_equal(lease(second, 0, 4096), 0);
}

static void cancelled_read_is_reported(void **state)
{
    struct os2g_gdd_cancel c = {.tag = 9};

    lease(file, 0, 65536);
    world.hold = true;
    submit(file, (struct os2g_gdd_entry){.tag = 9, .len = 8000}, "a/two");
    assert_int_equal(result_of(ioctl_(file, OS2G_IOC_GDD_CANCEL, &c)), 0);
    world.hold = false;
    world_run_held();
    assert_int_equal(reap(file, 1).c[0].result, -ECANCELED);
}

static void too_many_at_once_are_refused(void **state)
{
    int rc = 0;

    lease(file, 0, 65536);
    for (int i = 0; i < OS2G_GDD_SUBMITTED_MAX; i++)
        assert_int_equal(submit(file, (struct os2g_gdd_entry){.len = 8000}, "a/two"), 0);
    rc = submit(file, (struct os2g_gdd_entry){.len = 8000}, "a/two");
    assert_int_equal(rc, -EAGAIN);
    world_run();
    assert_int_equal(reap(file, 8).head.n, 8);
    assert_int_equal(submit(file, (struct os2g_gdd_entry){.len = 8000}, "a/two"), 0);
}

static void one_host_opens_it_so_many_times_at_most(void **state)
{
    struct host_request *r;

    for (int i = 1; i < 256; i++)
        open_file();
    r = open_as(&gpu, 1000, 1001);
    assert_int_equal(r->answer, ANSWER_ERROR);
    assert_int_equal(r->error, -EMFILE);
    assert_int_equal(open_as(&other_gpu, 1000, 1001)->answer, ANSWER_OPENED);
    host_release(file);
    open_file();
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(file_is_its_owners_alone),
        TEST(file_is_a_groups_where_that_was_said),
        TEST(directory_shows_it),
        TEST(host_without_such_memory_leases_nothing),
        TEST(another_host_cannot_use_it),
        TEST(leases_do_not_overlap),
        TEST(other_hosts_have_other_memory),
        TEST(place_is_found_where_there_is_room),
        TEST(lease_that_cannot_be_is_refused),
        TEST(leases_outlive_a_worker),
        TEST(lease_asked_for_again_by_the_next_worker_is_the_same),
        TEST(store_that_was_cut_short_leaves_what_was_there),
        TEST(object_lands_by_its_key),
        TEST(bytes_of_an_open_object_land),
        TEST(errors_are_those_of_the_object),
        TEST(what_another_host_has_opened_is_not_read),
        TEST(only_leased_places_are_landed_in),
        TEST(malformed_submits_are_refused),
        TEST(reap_waits_until_one_has_ended),
        TEST(reap_does_not_wait_for_what_is_not_under_way),
        TEST(reap_waits_no_longer_than_it_may),
        TEST(reap_can_be_interrupted),
        TEST(next_worker_tells_another_epoch),
        TEST(memory_that_is_gone_ends_reads_and_works_when_it_is_back),
        TEST(unlease_waits_until_nothing_lands_any_more),
        TEST(closed_file_keeps_its_place_until_nothing_lands_there),
        TEST(cancelled_read_is_reported),
        TEST(too_many_at_once_are_refused),
        TEST(one_host_opens_it_so_many_times_at_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
