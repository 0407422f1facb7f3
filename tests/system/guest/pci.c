// SPDX-License-Identifier: Apache-2.0
// Commands about the BAR that stands for GPU memory: BAR 2 of an ivshmem device.
#include "guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICES "/sys/bus/pci/devices"
#define COMMAND 0x04 // of the configuration space: bit 1 is memory decoding
#define BAR2    0x18

static bool is_ivshmem(const char *device)
{
    char path[300], text[2][16] = {"", ""};
    const char *names[] = {"vendor", "device"};

    for (int i = 0; i < 2; i++) {
        FILE *f;

        snprintf(path, sizeof(path), DEVICES "/%s/%s", device, names[i]);
        f = fopen(path, "r");
        if (!f || !fgets(text[i], sizeof(text[i]), f))
            text[i][0] = 0;
        if (f)
            fclose(f);
    }
    return !strcmp(text[0], "0x1af4\n") && !strcmp(text[1], "0x1110\n");
}

// Opens a file of the index-th such device.
static int open_file(unsigned index, const char *file, int flags)
{
    struct dirent **names;
    int n = scandir(DEVICES, &names, NULL, alphasort), fd = -ENODEV;

    for (int i = 0; i < n; i++) {
        char path[300];

        if (fd == -ENODEV && is_ivshmem(names[i]->d_name) && index-- == 0) {
            snprintf(path, sizeof(path), DEVICES "/%s/%s", names[i]->d_name, file);
            fd = open(path, flags | O_CLOEXEC);
            fd = fd < 0 ? -errno : fd;
        }
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return fd;
}

// Of a call that has failed; a compiler that looks ahead takes an errno of 0 for possible.
static int failure(void)
{
    return errno > 0 ? -errno : -EIO;
}

int bar_map(unsigned index, void **ret, uint64_t *ret_size)
{
    static struct {
        void *base;
        size_t size;
    } maps[4];

    if (index >= 4)
        return -EINVAL;
    if (!maps[index].base) {
        int fd = open_file(index, "resource2", O_RDWR), rc = fd < 0 ? fd : 0;
        void *base = MAP_FAILED;
        struct stat st;

        if (rc == 0 && fstat(fd, &st) == 0)
            base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (rc == 0 && base == MAP_FAILED)
            rc = failure();
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            return rc;
        maps[index].base = base;
        maps[index].size = (size_t)st.st_size;
    }
    *ret = maps[index].base;
    *ret_size = maps[index].size;
    return 0;
}

// Copies a piece of the BAR out, word by word as a device's memory is read.
static int copy_out(const struct command *c, int first, void **ret, size_t *ret_len)
{
    uint64_t offset = word_number(c, first), len = word_number(c, first + 1), size;
    void *base;
    int rc = bar_map(0, &base, &size);

    if (rc < 0)
        return rc;
    if (offset > size || len > size - offset)
        return -EINVAL;
    *ret = malloc(len + 1);
    if (!*ret)
        return -ENOMEM;
    memcpy(*ret, (const char *)base + offset, len);
    *ret_len = len;
    return 0;
}

// bar-hash OFFSET LENGTH
static int run_hash(const struct command *c)
{
    void *data;
    size_t len;
    int rc = copy_out(c, 1, &data, &len);

    if (rc < 0)
        return rc;
    say_sha256("sha256", data, len);
    free(data);
    return 0;
}

// bar-check OFFSET LENGTH START AT: bytes from AT on of the synthetic object that starts at START
static int run_check(const struct command *c)
{
    void *data;
    size_t len;
    int rc = copy_out(c, 1, &data, &len);

    if (rc < 0)
        return rc;
    say_number("wrong", synthetic_check(word_number(c, 3), word_number(c, 4), data, len));
    free(data);
    return 0;
}

// bar-fill OFFSET LENGTH BYTE
static int run_fill(const struct command *c)
{
    uint64_t offset = word_number(c, 1), len = word_number(c, 2), size;
    void *base;
    int rc = bar_map(0, &base, &size);

    if (rc < 0)
        return rc;
    if (offset > size || len > size - offset)
        return -EINVAL;
    memset((char *)base + offset, (int)word_number(c, 3), len);
    return 0;
}

// bar-place [ADDRESS]: where the BAR is; with ADDRESS it is put there, 0 takes it away
static int run_place(const struct command *c)
{
    int fd = open_file(0, "config", O_RDWR), rc = 0;
    uint64_t address = 0;
    uint16_t command = 0;

    if (fd < 0)
        return fd;
    if (c->argc > 1) {
        address = word_number(c, 1);
        if (pread(fd, &command, 2, COMMAND) != 2)
            rc = -EIO;
        command &= (uint16_t)~2;
        if (rc == 0 && pwrite(fd, &command, 2, COMMAND) != 2)
            rc = -EIO;
        if (rc == 0 && address && pwrite(fd, &address, 8, BAR2) != 8)
            rc = -EIO;
        command |= 2;
        if (rc == 0 && address && pwrite(fd, &command, 2, COMMAND) != 2)
            rc = -EIO;
    }
    if (pread(fd, &command, 2, COMMAND) != 2 || pread(fd, &address, 8, BAR2) != 8)
        rc = -EIO;
    close(fd);
    say_number("address", (int64_t)(address & ~(uint64_t)15));
    say_number("decoded", command >> 1 & 1);
    return rc;
}

const struct command_kind pci_commands[] = {
    {"bar-hash", run_hash},
    {"bar-check", run_check},
    {"bar-fill", run_fill},
    {"bar-place", run_place},
    {NULL},
};
