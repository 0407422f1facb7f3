// SPDX-License-Identifier: Apache-2.0
#include "lines.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

char **lines_read(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "r");
    char **lines = NULL, *line = NULL;
    size_t n = 0, size = 0, room = 0;
    ssize_t len;

    if (!f) {
        perror(path);
        exit(1);
    }
    while ((len = getline(&line, &room, f)) >= 0) {
        if (len && line[len - 1] == '\n')
            line[len - 1] = 0;
        if (n == size) {
            size = size ? 2 * size : 1024;
            lines = xrealloc(lines, size * sizeof(*lines));
        }
        lines[n++] = xstrdup(line);
    }
    free(line);
    fclose(f);
    *ret_n = n;
    return lines;
}
