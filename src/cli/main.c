// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "cli/commands.h"
#include "daemon/worker.h"
#include "gdd/engine.h"

#include <stdio.h>
#include <string.h>

static const struct cli_command *const commands[] = {
    &mount_command, &umount_command, &status_command, &prefetch_command, &ls_command,
    &cat_command,   &cp_command,     &stat_command,   &doctor_command,   &bench_command,
};

static void help(void)
{
    printf("Usage: os2g COMMAND [options] ...\n"
           "Object storage as files.\n\nCommands:\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf("\nos2g COMMAND --help tells more; os2g --version the version.\n");
}

static int unknown(const char *name)
{
    const char *names[ARRAY_LEN(commands) + 1] = {0}, *near;

    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        names[i] = commands[i]->name;
    near = text_nearest(name, names);
    if (near)
        cli_fail(NULL, "See: os2g --help", "there is no command '%s'; did you mean '%s'?", name,
                 near);
    else
        cli_fail(NULL, "See: os2g --help", "there is no command '%s'", name);
    return EXIT_USAGE;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";

    base_fill_std_fds();
    if (argc > 0 && !strcmp(base_name(argv[0]), "mount.os2g"))
        return mount_helper_main(argc, argv);
    if (!strcmp(name, WORKER_ARGUMENT))
        return worker_main(argc, argv);
    if (!strcmp(name, ENGINE_ARGUMENT))
        return engine_helper_main(argc, argv);
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        help();
        return argc > 1 ? 0 : EXIT_USAGE;
    }
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        printf("os2g %s\n", OS2G_VERSION);
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (!strcmp(name, commands[i]->name))
            return commands[i]->run(argc - 1, argv + 1);
    return unknown(name);
}
