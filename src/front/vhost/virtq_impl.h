// SPDX-License-Identifier: Apache-2.0
// Inside the virtqueue.
//
//   virtq.c         the log, the ring, signals
//   virtq_chain.c   chains of descriptors
#pragma once

#include "front/vhost/virtq.h"

#define FEATURE(q, bit) ((q)->features >> (bit)&1)

// The chain at head, as virtq_pop gives it. 0; -EFAULT or -EBADMSG with a sentence.
int virtq_walk(const struct virtq *q, uint16_t head, struct virtq_chain *ret, const char **ret_why);
