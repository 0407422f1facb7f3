// SPDX-License-Identifier: Apache-2.0
#include "guest.h"
const struct command_kind gdd_commands[] = {{NULL}};
