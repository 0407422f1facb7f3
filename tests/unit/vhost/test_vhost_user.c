// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/vhost_user.h"

#include <string.h>

#include "test.h"

static int read_message(uint32_t request, const void *payload, uint32_t size, unsigned n_fds)
{
    const struct vhost_user_header h = {request, VHOST_USER_VERSION, size};
    struct vhost_user_message m;
    const char *why = NULL;
    int rc = vhost_user_read(&h, payload, n_fds, &m, &why);

    assert_int_equal(rc < 0, why != NULL);
    return rc;
}

static void a_header_of_another_version_is_refused(void **state)
{
    const struct vhost_user_header h = {VHOST_USER_GET_FEATURES, 2, 0};
    const char *why = NULL;
    uint32_t size;

    assert_int_equal(vhost_user_read_header(&h, &size, &why), -EBADMSG);
    assert_non_null(why);
}

static void a_reply_is_no_request(void **state)
{
    const struct vhost_user_header h = {VHOST_USER_GET_FEATURES,
                                        VHOST_USER_VERSION | VHOST_USER_REPLY, 0};
    const char *why = NULL;
    uint32_t size;

    assert_int_equal(vhost_user_read_header(&h, &size, &why), -EBADMSG);
}

static void a_payload_that_nobody_has_room_for_is_refused(void **state)
{
    struct vhost_user_header h = {99, VHOST_USER_VERSION, VHOST_USER_BYTES_MAX};
    const char *why = NULL;
    uint32_t size = 0;

    assert_int_equal(vhost_user_read_header(&h, &size, &why), 0);
    assert_int_equal(size, VHOST_USER_BYTES_MAX);
    h.size++;
    assert_int_equal(vhost_user_read_header(&h, &size, &why), -EBADMSG);
}

static void each_kind_has_one_length(void **state)
{
    const uint64_t u = 0;

    assert_int_equal(read_message(VHOST_USER_SET_FEATURES, &u, 8, 0), 0);
    assert_int_equal(read_message(VHOST_USER_SET_FEATURES, &u, 7, 0), -EBADMSG);
    assert_int_equal(read_message(VHOST_USER_GET_FEATURES, &u, 0, 0), 0);
    assert_int_equal(read_message(VHOST_USER_GET_FEATURES, &u, 8, 0), -EBADMSG);
}

static void each_kind_has_its_descriptors(void **state)
{
    const struct vhost_user_mem_reg m = {.region = {.size = 4096}};
    const uint64_t u = 0;

    assert_int_equal(read_message(VHOST_USER_SET_FEATURES, &u, 8, 1), -EBADMSG);
    assert_int_equal(read_message(VHOST_USER_ADD_MEM_REG, &m, sizeof(m), 1), 0);
    assert_int_equal(read_message(VHOST_USER_ADD_MEM_REG, &m, sizeof(m), 0), -EBADMSG);
    assert_int_equal(read_message(VHOST_USER_ADD_MEM_REG, &m, sizeof(m), 2), -EBADMSG);
    // QEMU sends one, others do not
    assert_int_equal(read_message(VHOST_USER_REM_MEM_REG, &m, sizeof(m), 0), 0);
    assert_int_equal(read_message(VHOST_USER_REM_MEM_REG, &m, sizeof(m), 1), 0);
}

static void a_table_is_as_long_as_it_says(void **state)
{
    struct vhost_user_mem_table t = {.n = 2};

    t.regions[0] = (struct vhost_user_region){.guest_addr = 0, .size = 4096};
    t.regions[1] = (struct vhost_user_region){.guest_addr = 4096, .size = 4096};
    assert_int_equal(read_message(VHOST_USER_SET_MEM_TABLE, &t, 8 + 2 * 32, 2), 0);
    assert_int_equal(read_message(VHOST_USER_SET_MEM_TABLE, &t, 8 + 2 * 32, 1), -EBADMSG);
    assert_int_equal(read_message(VHOST_USER_SET_MEM_TABLE, &t, 8 + 3 * 32, 2), -EBADMSG);
    t.n = 9;
    assert_int_equal(read_message(VHOST_USER_SET_MEM_TABLE, &t, sizeof(t), 8), -EBADMSG);
}

static void regions_of_a_table_do_not_overlap(void **state)
{
    struct vhost_user_mem_table t = {.n = 2};

    t.regions[0] = (struct vhost_user_region){.guest_addr = 0, .size = 8192};
    t.regions[1] = (struct vhost_user_region){.guest_addr = 4096, .size = 4096};
    assert_int_equal(read_message(VHOST_USER_SET_MEM_TABLE, &t, 8 + 2 * 32, 2), -EBADMSG);
}

static void a_region_fits_into_an_address_space(void **state)
{
    struct vhost_user_mem_reg m = {.region = {.size = 4096}};

    m.region.guest_addr = UINT64_MAX - 4095;
    assert_int_equal(read_message(VHOST_USER_ADD_MEM_REG, &m, sizeof(m), 1), -EBADMSG);
    m.region.guest_addr = 0;
    m.region.user_addr = UINT64_MAX - 10;
    assert_int_equal(read_message(VHOST_USER_ADD_MEM_REG, &m, sizeof(m), 1), -EBADMSG);
    m.region.user_addr = 0;
    m.region.mmap_offset = INT64_MAX;
    assert_int_equal(read_message(VHOST_USER_ADD_MEM_REG, &m, sizeof(m), 1), -EBADMSG);
    m.region.mmap_offset = 0;
    m.region.size = 0;
    assert_int_equal(read_message(VHOST_USER_ADD_MEM_REG, &m, sizeof(m), 1), -EBADMSG);
}

static void a_ring_s_size_is_a_power_of_two(void **state)
{
    static const struct {
        uint32_t num;
        int rc;
    } cases[] = {{0, -EBADMSG}, {1, 0},           {3, -EBADMSG},
                 {1024, 0},     {2048, -EBADMSG}, {UINT32_MAX, -EBADMSG}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct vhost_user_vring_state s = {0, cases[i].num};

        assert_int_equal(read_message(VHOST_USER_SET_VRING_NUM, &s, sizeof(s), 0), cases[i].rc);
    }
}

static void a_ring_beyond_the_last_is_refused(void **state)
{
    const struct vhost_user_vring_state s = {9, 1};
    const struct vhost_user_vring_addr a = {.index = 9};
    const uint64_t u = 9;

    assert_int_equal(read_message(VHOST_USER_SET_VRING_NUM, &s, sizeof(s), 0), -EBADMSG);
    assert_int_equal(read_message(VHOST_USER_SET_VRING_BASE, &s, sizeof(s), 0), -EBADMSG);
    assert_int_equal(read_message(VHOST_USER_GET_VRING_BASE, &s, sizeof(s), 0), -EBADMSG);
    assert_int_equal(read_message(VHOST_USER_SET_VRING_ENABLE, &s, sizeof(s), 0), -EBADMSG);
    assert_int_equal(read_message(VHOST_USER_SET_VRING_ADDR, &a, sizeof(a), 0), -EBADMSG);
    assert_int_equal(read_message(VHOST_USER_SET_VRING_KICK, &u, sizeof(u), 1), -EBADMSG);
}

static void a_ring_s_descriptor_is_there_as_it_says(void **state)
{
    uint64_t u = 3;

    assert_int_equal(read_message(VHOST_USER_SET_VRING_KICK, &u, sizeof(u), 1), 0);
    assert_int_equal(read_message(VHOST_USER_SET_VRING_KICK, &u, sizeof(u), 0), -EBADMSG);
    u |= VHOST_USER_VRING_NOFD;
    assert_int_equal(read_message(VHOST_USER_SET_VRING_KICK, &u, sizeof(u), 0), 0);
    assert_int_equal(read_message(VHOST_USER_SET_VRING_KICK, &u, sizeof(u), 1), -EBADMSG);
    u = 1 << 9;
    assert_int_equal(read_message(VHOST_USER_SET_VRING_KICK, &u, sizeof(u), 1), -EBADMSG);
}

static void a_ring_that_is_not_aligned_is_refused(void **state)
{
    struct vhost_user_vring_addr a = {.desc = 16, .avail = 2, .used = 4};

    assert_int_equal(read_message(VHOST_USER_SET_VRING_ADDR, &a, sizeof(a), 0), 0);
    a.desc = 8;
    assert_int_equal(read_message(VHOST_USER_SET_VRING_ADDR, &a, sizeof(a), 0), -EBADMSG);
    a.desc = 16;
    a.used = 2;
    assert_int_equal(read_message(VHOST_USER_SET_VRING_ADDR, &a, sizeof(a), 0), -EBADMSG);
}

static void configuration_is_as_long_as_it_says(void **state)
{
    struct vhost_user_config c = {.size = 40};

    assert_int_equal(read_message(VHOST_USER_GET_CONFIG, &c, 12 + 40, 0), 0);
    assert_int_equal(read_message(VHOST_USER_GET_CONFIG, &c, 12 + 41, 0), -EBADMSG);
    c.size = 257;
    assert_int_equal(read_message(VHOST_USER_GET_CONFIG, &c, 12 + 256, 0), -EBADMSG);
}

static void a_request_of_the_future_is_taken_as_unknown(void **state)
{
    const struct vhost_user_header h = {77, VHOST_USER_VERSION | VHOST_USER_NEED_REPLY, 100};
    struct vhost_user_message m;
    uint8_t payload[100] = {0};
    const char *why;

    assert_int_equal(vhost_user_read(&h, payload, 3, &m, &why), 0);
    assert_false(m.known);
    assert_true(m.need_reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_of_another_version_is_refused),
        cmocka_unit_test(a_reply_is_no_request),
        cmocka_unit_test(a_payload_that_nobody_has_room_for_is_refused),
        cmocka_unit_test(each_kind_has_one_length),
        cmocka_unit_test(each_kind_has_its_descriptors),
        cmocka_unit_test(a_table_is_as_long_as_it_says),
        cmocka_unit_test(regions_of_a_table_do_not_overlap),
        cmocka_unit_test(a_region_fits_into_an_address_space),
        cmocka_unit_test(a_ring_s_size_is_a_power_of_two),
        cmocka_unit_test(a_ring_beyond_the_last_is_refused),
        cmocka_unit_test(a_ring_s_descriptor_is_there_as_it_says),
        cmocka_unit_test(a_ring_that_is_not_aligned_is_refused),
        cmocka_unit_test(configuration_is_as_long_as_it_says),
        cmocka_unit_test(a_request_of_the_future_is_taken_as_unknown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
