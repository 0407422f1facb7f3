// SPDX-License-Identifier: Apache-2.0
#include "base/rendezvous.h"

#include "base/text.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define CONTROL_SUFFIX ".sock"

char *rendezvous_directory(uid_t owner)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char *path;

    if (owner == 0)
        return xstrdup("/run/os2g");
    if (owner == geteuid() && runtime && runtime[0] == '/')
        return xasprintf("%s/os2g", runtime);
    path = xasprintf("/run/user/%u", owner);
    if (access(path, F_OK) == 0) {
        char *below = xasprintf("%s/os2g", path);

        free(path);
        return below;
    }
    free(path);
    return xasprintf("/tmp/os2g-%u", owner);
}

static char *name_of(uid_t owner, const char *place, const char *suffix)
{
    char *parent = rendezvous_directory(owner), *path;

    path = xasprintf("%s/%016llx%s", parent, (unsigned long long)XXH3_64bits(place, strlen(place)),
                     suffix);
    free(parent);
    return path;
}

char *rendezvous_control(uid_t owner, const char *place)
{
    return name_of(owner, place, CONTROL_SUFFIX);
}

static int is_control(const struct dirent *e)
{
    return e->d_name[0] != '.' && text_ends_with(e->d_name, CONTROL_SUFFIX);
}

char **rendezvous_controls(uid_t owner)
{
    char *directory = rendezvous_directory(owner), **paths = NULL;
    struct dirent **entries;
    int n = scandir(directory, &entries, is_control, alphasort);

    if (n >= 0) {
        paths = xcalloc((size_t)n + 1, sizeof(*paths));
        for (int i = 0; i < n; i++) {
            paths[i] = xasprintf("%s/%s", directory, entries[i]->d_name);
            free(entries[i]);
        }
        free(entries);
    }
    free(directory);
    return paths;
}

char *rendezvous_socket(uid_t owner, const char *directory)
{
    return name_of(owner, directory, ".vhost");
}
