// SPDX-License-Identifier: Apache-2.0
#include "s3d/credentials.h"

#include "base/rand.h"
#include "base/text.h"
#include "s3d/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ISSUED_MAX 100000

void credential_table_init(struct credential_table *t)
{
    *t = (struct credential_table){0};
    pthread_rwlock_init(&t->lock, NULL);
    keymap_init(&t->by_access);
}

static void credential_free(struct credential *c)
{
    free(c->access);
    free(c->secret);
    free(c->token);
    free(c->prefix);
    free(c);
}

void credential_table_fini(struct credential_table *t)
{
    for (struct keymap_node *n = keymap_first(&t->by_access); n; n = n->next[0])
        credential_free(n->value);
    keymap_fini(&t->by_access);
    pthread_rwlock_destroy(&t->lock);
}

static int add(struct credential_table *t, struct credential *c)
{
    int rc = 0;

    pthread_rwlock_wrlock(&t->lock);
    if (keymap_get(&t->by_access, c->access))
        rc = -EEXIST;
    else
        keymap_put(&t->by_access, c->access, c);
    pthread_rwlock_unlock(&t->lock);
    if (rc < 0)
        credential_free(c);
    return rc;
}

int credential_table_add(struct credential_table *t, const char *access, const char *secret,
                         unsigned rights, const char *prefix)
{
    struct credential *c = xcalloc(1, sizeof(*c));

    c->access = xstrdup(access);
    c->secret = xstrdup(secret);
    c->expires_s = INT64_MAX;
    c->rights = rights;
    c->prefix = xstrdup(prefix);
    return add(t, c);
}

static int parse_rights(char *text, unsigned *ret)
{
    static const struct {
        const char *name;
        unsigned right;
    } names[] = {{"get", RIGHT_GET},       {"list", RIGHT_LIST}, {"put", RIGHT_PUT},
                 {"delete", RIGHT_DELETE}, {"all", RIGHT_ALL},   {"none", 0}};
    char *save;

    *ret = 0;
    for (char *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        size_t i = 0;

        while (i < ARRAY_LEN(names) && strcmp(names[i].name, word) != 0)
            i++;
        if (i == ARRAY_LEN(names))
            return -EINVAL;
        *ret |= names[i].right;
    }
    return 0;
}

static int load_line(struct credential_table *t, char *line)
{
    char *save, *access, *secret, *word;
    const char *prefix = "";
    unsigned rights = RIGHT_ALL;

    line[strcspn(line, "#\r\n")] = 0;
    access = strtok_r(line, " \t", &save);
    if (!access)
        return 0;
    secret = strtok_r(NULL, " \t", &save);
    if (!secret)
        return -EINVAL;
    while ((word = strtok_r(NULL, " \t", &save))) {
        if (text_starts_with(word, "rights=")) {
            if (parse_rights(word + 7, &rights) < 0)
                return -EINVAL;
        } else if (text_starts_with(word, "prefix=")) {
            prefix = word + 7;
        } else {
            return -EINVAL;
        }
    }
    return credential_table_add(t, access, secret, rights, prefix);
}

int credential_table_load(struct credential_table *t, const char *path, char **ret_why)
{
    FILE *f = fopen(path, "re");
    unsigned number = 0;
    char line[4096];
    int rc = 0;

    if (!f)
        return -errno;
    while (rc == 0 && fgets(line, sizeof(line), f)) {
        number++;
        rc = load_line(t, line);
    }
    fclose(f);
    if (rc == 0)
        return 0;
    *ret_why = xasprintf("%s:%u: %s", path, number,
                         rc == -EEXIST ? "this access key was there before"
                                       : "expected ACCESS SECRET [rights=get,list,put,delete] "
                                         "[prefix=BUCKET/PREFIX]");
    return -EINVAL;
}

const struct credential *credential_table_find(struct credential_table *t, const char *access)
{
    const struct credential *c;

    pthread_rwlock_rdlock(&t->lock);
    c = keymap_get(&t->by_access, access);
    pthread_rwlock_unlock(&t->lock);
    return c;
}

const struct credential *credential_table_issue(struct credential_table *t, int64_t expires_s)
{
    struct credential *c;
    struct rand rand;
    uint64_t n;

    pthread_rwlock_wrlock(&t->lock);
    n = t->n_issued < ISSUED_MAX ? ++t->n_issued : 0;
    pthread_rwlock_unlock(&t->lock);
    if (!n)
        return NULL;
    rand_seed_from_system(&rand);
    c = xcalloc(1, sizeof(*c));
    c->access = xasprintf("ASIA%016llX", (unsigned long long)rand_u64(&rand));
    c->secret =
        xasprintf("%016llx%016llx%08llx", (unsigned long long)rand_u64(&rand),
                  (unsigned long long)rand_u64(&rand), (unsigned long long)rand_u64(&rand) >> 32);
    c->token = xasprintf("s3d-session-%llu-%016llx%016llx", (unsigned long long)n,
                         (unsigned long long)rand_u64(&rand), (unsigned long long)rand_u64(&rand));
    c->expires_s = expires_s;
    c->rights = RIGHT_ALL;
    c->prefix = xstrdup("");
    return add(t, c) == 0 ? c : NULL;
}

unsigned credential_table_expire_all(struct credential_table *t, int64_t now_s)
{
    unsigned n = 0;

    pthread_rwlock_wrlock(&t->lock);
    for (struct keymap_node *node = keymap_first(&t->by_access); node; node = node->next[0]) {
        struct credential *c = node->value;

        if (c->token && c->expires_s > now_s) {
            atomic_store(&c->expires_s, now_s);
            n++;
        }
    }
    pthread_rwlock_unlock(&t->lock);
    return n;
}
