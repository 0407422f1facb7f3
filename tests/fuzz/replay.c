// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target once over every file of the folders named, without libFuzzer.
#include "base/base.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = xmalloc(1 << 20);
    size_t n;

    if (!f) {
        perror(path);
        free(data);
        return -1;
    }
    n = fread(data, 1, 1 << 20, f);
    fclose(f);
    // a copy of the exact size, so that the sanitizer sees a read beyond it
    uint8_t *exact = xmalloc(n);
    for (size_t i = 0; i < n; i++)
        exact[i] = data[i];
    free(data);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned files = 0;

    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        struct dirent *e;

        if (!d) {
            perror(argv[i]);
            return 1;
        }
        while ((e = readdir(d))) {
            char *path;

            if (e->d_name[0] == '.')
                continue;
            path = xasprintf("%s/%s", argv[i], e->d_name);
            if (replay_file(path) < 0)
                return 1;
            free(path);
            files++;
        }
        closedir(d);
    }
    printf("%u inputs replayed\n", files);
    return files ? 0 : 1;
}
