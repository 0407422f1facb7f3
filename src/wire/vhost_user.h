// SPDX-License-Identifier: Apache-2.0
// vhost-user messages as QEMU's docs/interop/vhost-user.rst has them (v7.2 and newer): no system
// header does. Used by front/vhost (device) and host/ (libos2g, the front-end).
#pragma once

#include <assert.h>
#include <stdint.h>

enum vhost_user_request {
    VHOST_USER_GET_FEATURES = 1,
    VHOST_USER_SET_FEATURES = 2,
    VHOST_USER_SET_OWNER = 3,
    VHOST_USER_RESET_OWNER = 4,
    VHOST_USER_SET_MEM_TABLE = 5,
    VHOST_USER_SET_VRING_NUM = 8,
    VHOST_USER_SET_VRING_ADDR = 9,
    VHOST_USER_SET_VRING_BASE = 10,
    VHOST_USER_GET_VRING_BASE = 11,
    VHOST_USER_SET_VRING_KICK = 12,
    VHOST_USER_SET_VRING_CALL = 13,
    VHOST_USER_SET_VRING_ERR = 14,
    VHOST_USER_GET_PROTOCOL_FEATURES = 15,
    VHOST_USER_SET_PROTOCOL_FEATURES = 16,
    VHOST_USER_GET_QUEUE_NUM = 17,
    VHOST_USER_SET_VRING_ENABLE = 18,
    VHOST_USER_GET_CONFIG = 24,
    VHOST_USER_SET_CONFIG = 25,
    VHOST_USER_GET_MAX_MEM_SLOTS = 36,
    VHOST_USER_ADD_MEM_REG = 37,
    VHOST_USER_REM_MEM_REG = 38,
    VHOST_USER_SET_STATUS = 39,
    VHOST_USER_GET_STATUS = 40,
};

#define VHOST_USER_VERSION      1u
#define VHOST_USER_VERSION_MASK 3u
#define VHOST_USER_REPLY        (1u << 2)
#define VHOST_USER_NEED_REPLY   (1u << 3)

#define VHOST_USER_F_PROTOCOL_FEATURES 30 // bit of the device's features

// bits of the protocol features
#define VHOST_USER_PROTOCOL_F_MQ                  0
#define VHOST_USER_PROTOCOL_F_REPLY_ACK           3
#define VHOST_USER_PROTOCOL_F_CONFIG              9
#define VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS 15

#define VHOST_USER_VRING_INDEX 0xffu     // of the u64 of SET_VRING_KICK and _CALL
#define VHOST_USER_VRING_NOFD  (1u << 8) // no descriptor came with it

#define VHOST_USER_TABLE_MAX 8 // regions in a SET_MEM_TABLE

struct vhost_user_header {
    uint32_t request, flags, size; // of what follows
};
_Static_assert(sizeof(struct vhost_user_header) == 12, "as sent");

struct vhost_user_region {
    uint64_t guest_addr, size, user_addr, mmap_offset;
};

struct vhost_user_mem_table {
    uint32_t n, pad;
    struct vhost_user_region regions[VHOST_USER_TABLE_MAX];
};

struct vhost_user_mem_reg { // ADD_MEM_REG, REM_MEM_REG
    uint64_t pad;
    struct vhost_user_region region;
};

struct vhost_user_vring_state {
    uint32_t index, num;
};

struct vhost_user_vring_addr {
    uint32_t index, flags;
    uint64_t desc, used, avail, log;
};
_Static_assert(sizeof(struct vhost_user_vring_addr) == 40, "as sent");

struct vhost_user_config {
    uint32_t offset, size, flags;
    uint8_t data[256];
};

union vhost_user_payload {
    uint64_t u64;
    struct vhost_user_mem_table table;
    struct vhost_user_mem_reg reg;
    struct vhost_user_vring_state state;
    struct vhost_user_vring_addr addr;
    struct vhost_user_config config;
};
