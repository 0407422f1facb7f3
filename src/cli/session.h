// SPDX-License-Identifier: Apache-2.0
// A command's own client of one bucket: a loop on a thread, credentials, and a client on it. For
// the commands that ask the store themselves (ls, cat, cp, stat, doctor). A command runs on the
// main thread and waits; call-backs run on the session's loop.
#pragma once

#include "cli/options.h"
#include "s3/s3.h"

#include <semaphore.h>

struct os2g;

struct session {
    struct os2g *daemon; // asked instead of the store, then all below is NULL
    struct loop *loop;
    struct credentials_provider *provider;
    struct s3_bucket *bucket;
    struct s3_client *client;
};

// The options of exports that such a command takes.
#define SESSION_EXPORT_GROUPS                                                                      \
    (EXPORT_GROUP_STORE | EXPORT_GROUP_CREDENTIALS | EXPORT_GROUP_TRANSFER | EXPORT_GROUP_LOG)

// "s3://bucket/key": sets o's bucket; the key as given ("" if none; behind --prefix) is the
// caller's to free. -EINVAL with a sentence in *ret_error.
int session_source(struct export_options *o, const char *source, char **ret_key, char **ret_error);

// Completes the settings of o from the environment and the profile. 0, or -errno with a sentence in
// *ret_error and nothing left open. o must outlive the session.
int session_open(struct session *s, struct export_options *o, char **ret_error);
enum session_wish {
    SESSION_OBJECT = 1, // source is to have a key
    SESSION_SHARED = 2, // for session_head, session_list without a delimiter, and fetch_run, of key
                        // alone or what is below it: by way of the daemon that OS2G_SOCKET names,
                        // if any
};
// What a command begins with: session_source and session_open, and what is wrong is told in its
// name. 0 and *ret_key, the caller's to free; or -errno.
int session_begin(struct session *s, const struct cli_command *c, struct export_options *o,
                  const char *source, unsigned wishes, char **ret_key);
void session_close(struct session *s); // all operations have ended; also after a failed open

// One wait of the main thread for something on the loop.
struct session_wait {
    sem_t sem;
    int error;
    char text[S3_ERROR_TEXT]; // for people; "" if error says it all
};
void session_wait_init(struct session_wait *w);
void session_wait_done(struct session_wait *w, int error, const char *text); // on the loop
int session_wait_for(struct session_wait *w);                                // on the main thread

// Runs fn(arg) on the loop, waits until it has returned.
static inline void session_call(struct session *s, void (*fn)(void *arg), void *arg)
{
    loop_call(s->loop, fn, arg);
}

// HEAD. fn (may be NULL) sees the answer, on the loop. Returns the error; text has S3_ERROR_TEXT
// bytes.
int session_head(struct session *s, const char *key,
                 void (*fn)(void *arg, const struct s3_object_info *info), void *arg, char *text);
// Lists everything below prefix; fn on the loop, <0 from it ends the listing with that error.
int session_list(struct session *s, const char *prefix, char delimiter,
                 int (*fn)(void *arg, const struct s3_list_entry *e), void *arg, char *text);

// Whether a key, or the rest of one, can be a path below a directory, without stepping out of it.
bool session_is_path(const char *key);

// cli_fail with text, or what error means when there is none.
int session_fail(const struct cli_command *c, const char *text, int error);
