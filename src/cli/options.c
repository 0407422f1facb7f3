// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELP_COLUMN 34
#define HELP_WIDTH  80
#define MAX_NAMES   128

// What stands before a command's name.
static const char *prefix(const struct cli_command *c)
{
    return !c ? "os2g" : c->program ? "" : "os2g ";
}

int cli_fail(const struct cli_command *c, const char *hint, const char *fmt, ...)
{
    const char *before = prefix(c), *name = c ? c->name : "";
    va_list args;

    fflush(stdout);
    fprintf(stderr, "%s%s: ", before, name);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n%s%s", hint ? hint : "", hint ? "\n" : "");
    return 1;
}

// --- help ---

static void help_line(char letter, const char *name, const char *value, bool optional,
                      const char *help)
{
    int n = letter ? printf("  -%c, --%s", letter, name) : printf("      --%s", name);

    if (value)
        n += printf(optional ? "[=%s]" : " %s", value);
    if (n >= HELP_COLUMN)
        printf("\n%*s", HELP_COLUMN, "");
    else
        printf("%*s", HELP_COLUMN - n, "");
    printf("%s\n", help);
}

// Paragraphs in lines of a terminal's width; a line that begins with a blank is left as it is.
static void help_text(const char *text)
{
    size_t column = 0;

    while (*text) {
        size_t len = strcspn(text, " \n");

        if (*text == '\n') {
            putchar('\n');
            column = 0;
            text++;
            if (*text != ' ')
                continue;
            len = strcspn(text, "\n");
            printf("%.*s", (int)len, text);
            text += len;
            continue;
        }

        if (column && column + 1 + len > HELP_WIDTH) {
            putchar('\n');
            column = 0;
        }
        column += (size_t)printf("%s%.*s", column ? " " : "", (int)len, text);
        text += len + strspn(text + len, " ");
    }
    putchar('\n');
}

void cli_help(const struct cli_command *c)
{
    printf("Usage: %s%s [options] %s\n%s.\n", prefix(c), c->name, c->synopsis, c->summary);
    if (c->text) {
        putchar('\n');
        help_text(c->text);
    }
    printf("\nOptions:\n");
    for (const struct cli_option *o = c->options; o && o->name; o++)
        help_line(o->letter, o->name, o->value, o->optional, o->help);
    help_line('h', "help", NULL, false, "this text");
    for (unsigned group = 1; group < EXPORT_GROUP_ALL; group <<= 1) {
        if (!(c->export_groups & group))
            continue;
        printf("\n%s:\n", export_option_group_title((enum export_option_group)group));
        for (const struct export_option *o = export_option_table; o->name; o++)
            if (o->group == (enum export_option_group)group)
                help_line(0, o->name, o->value, false, o->help);
    }
}

// --- parsing ---

// What was read so far goes with the process.
static _Noreturn void leave(int status)
{
    fflush(NULL);
    _exit(status);
}

struct parse {
    const struct cli_command *command;
    void *target;
    struct export_options *export;
    char **argv;
    int argc, next;
};

static _Noreturn void wrong(const struct parse *p, const char *sentence)
{
    char *hint = xasprintf("See: %s%s --help", prefix(p->command), p->command->name);

    cli_fail(p->command, hint, "%s", sentence);
    leave(EXIT_USAGE);
}

static const char *nearest(const struct cli_command *c, const char *name)
{
    const char *names[MAX_NAMES] = {0};
    size_t n = 0;

    for (const struct cli_option *o = c->options; o && o->name && n < MAX_NAMES - 2; o++)
        names[n++] = o->name;
    for (const struct export_option *o = export_option_table; o->name && n < MAX_NAMES - 2; o++)
        if (c->export_groups & o->group)
            names[n++] = o->name;
    names[n] = "help";
    return text_nearest(name, names);
}

static _Noreturn void unknown(const struct parse *p, const char *name)
{
    const char *near = nearest(p->command, name);

    wrong(p, near ? xasprintf("there is no option --%s; did you mean --%s?", name, near)
                  : xasprintf("there is no option --%s", name));
}

static const struct cli_option *find_own(const struct cli_command *c, const char *name, char letter)
{
    for (const struct cli_option *o = c->options; o && o->name; o++)
        if (name ? !strcmp(o->name, name) : o->letter == letter)
            return o;
    return NULL;
}

static const struct export_option *find_export(const struct parse *p, const char *name)
{
    for (const struct export_option *o = export_option_table; o->name; o++)
        if ((p->command->export_groups & o->group) && !strcmp(o->name, name))
            return o;
    return NULL;
}

// The value of an option: behind its '=', or the next argument.
static const char *take_value(struct parse *p, const char *name, const char *takes,
                              const char *inline_value)
{
    if (!takes || inline_value)
        return inline_value;
    if (p->next >= p->argc)
        wrong(p, xasprintf("--%s needs a value (%s)", name, takes));
    return p->argv[p->next++];
}

static void own_option(struct parse *p, const struct cli_option *o, const char *inline_value)
{
    const char *value = o->optional ? inline_value : take_value(p, o->name, o->value, inline_value);
    char *error = NULL;

    if (!o->value && value)
        wrong(p, xasprintf("--%s takes no value", o->name));
    if (o->set(p->target, value, &error) < 0)
        wrong(p, error);
}

static void long_option(struct parse *p, const char *arg)
{
    const char *eq = strchr(arg, '=');
    char *name = eq ? xstrndup(arg, (size_t)(eq - arg)) : xstrdup(arg);
    const struct cli_option *own = find_own(p->command, name, 0);
    const struct export_option *o = own ? NULL : find_export(p, name);
    char *error = NULL;

    if (!strcmp(name, "help")) {
        cli_help(p->command);
        leave(0);
    }
    if (own)
        own_option(p, own, eq ? eq + 1 : NULL);
    else if (!o)
        unknown(p, name);
    else if (export_options_set(p->export, name, take_value(p, name, o->value, eq ? eq + 1 : NULL),
                                &error) < 0)
        wrong(p, error);
    free(name);
}

// -f, -fz, -o value, -ovalue
static void short_options(struct parse *p, const char *letters)
{
    for (; *letters; letters++) {
        const struct cli_option *o = find_own(p->command, NULL, *letters);

        if (*letters == 'h') {
            cli_help(p->command);
            leave(0);
        }
        if (!o)
            wrong(p, xasprintf("there is no option -%c", *letters));
        if (o->value) {
            own_option(p, o, letters[1] ? letters + 1 : NULL);
            return;
        }
        own_option(p, o, NULL);
    }
}

void cli_parse(const struct cli_command *c, int argc, char **argv, void *target,
               struct export_options *o, struct cli_arguments *ret)
{
    struct parse p = {
        .command = c, .target = target, .export = o, .argv = argv, .argc = argc, .next = 1};
    bool only_words = false;

    *ret = (struct cli_arguments){.words = xcalloc((size_t)argc + 1, sizeof(char *))};
    while (p.next < argc) {
        char *arg = argv[p.next++];

        if (only_words || arg[0] != '-' || !arg[1])
            ret->words[ret->n++] = arg;
        else if (!strcmp(arg, "--"))
            only_words = true;
        else if (arg[1] == '-')
            long_option(&p, arg + 2);
        else
            short_options(&p, arg + 1);
    }
}
