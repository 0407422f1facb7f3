// SPDX-License-Identifier: Apache-2.0
// cli/: os2g, the command for people. One file a command; main.c has the table of them. Uses
// every layer below; nobody uses it.
#pragma once

#include "cli/options.h"

extern const struct cli_command bench_command, cat_command, cp_command, doctor_command, ls_command,
    mount_command, prefetch_command, stat_command, status_command, umount_command;

// mount.os2g SOURCE DIR [-sfnv] [-o OPTIONS], as mount(8) calls it for fstab's lines.
int mount_helper_main(int argc, char **argv);
