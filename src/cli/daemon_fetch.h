// SPDX-License-Identifier: Apache-2.0
// Inside cli/: what session.h and fetch.h do, by way of a daemon (libos2g) instead of the store.
#pragma once

#include "cli/fetch.h"

#include <os2g/os2g.h>

// Whether a command's objects come from the daemon that OS2G_SOCKET names: unless the command line
// says itself how the store is asked, or key is none that a path can name. 1: s->daemon is there;
// 0: not from a daemon; -errno with a sentence.
int daemon_open(struct session *s, const struct export_options *o, const char *key,
                char **ret_error);
void daemon_close(struct session *s);

// As session_head and session_list (of all below prefix, "" or "a/b/").
int daemon_head(struct session *s, const char *key,
                void (*fn)(void *arg, const struct s3_object_info *info), void *arg, char *text);
int daemon_list(struct session *s, const char *prefix,
                int (*fn)(void *arg, const struct s3_list_entry *e), void *arg, char *text);
// As fetch_run.
int daemon_fetch_run(struct session *s, const struct fetch_config *config,
                     struct fetch_object *objects, size_t n);

// Calls fn for each file below the directory path ("" or "a/b/"), one directory after the other;
// <0 from it ends that. -errno with a sentence.
int daemon_walk(struct os2g *c, const char *path,
                int (*fn)(void *arg, const char *key, const struct os2g_stat *st), void *arg,
                char **ret_error);
