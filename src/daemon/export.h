// SPDX-License-Identifier: Apache-2.0
// One export's layers, put together: credentials, bucket, cache, file system and wires. In the
// worker, on its namespace loop.
#pragma once

#include "cache/cache.h"
#include "daemon/export_options.h"
#include "daemon/session_table.h"
#include "front/devfuse/devfuse.h"
#include "front/vhost/vhost.h"
#include "fs/fs.h"
#include "s3/credentials.h"
#include "s3/s3.h"

struct export
{
    struct loop *loop;
    const struct export_options *options;
    struct credentials_provider *provider;
    struct s3_bucket *bucket;
    struct cache *cache;
    struct fs *fs;
    struct devfuse *wire; // NULL until export_serve
    struct vhost *vhost;  // NULL until export_serve_hosts
    struct session_table hosts;
    char *source; // what hosts are told: "s3://bucket/prefix/"
};

// All but the wires. profile_json as of credentials_local_resolve, or NULL. nodes_fd and handles_fd
// are memfds that outlive this process, or -1. What is built stays with e whatever is returned:
// an export ends with its process. 0, or -errno with a sentence in *ret_error.
int export_build(struct export *e, struct loop *l, struct export_options *o,
                 struct credentials_resolver *resolver, const char *profile_json, int nodes_fd,
                 int handles_fd, char **ret_error);

// Starts answering the mount. gone is called once when the kernel has unmounted it.
int export_serve(struct export *e, int fuse_fd, int slots_fd, void (*gone)(void *arg), void *arg,
                 char **ret_error);

// Starts answering hosts that share memory: export_command may be called from now on. life_fd: as
// of vhost_config. event: to the supervisor.
int export_serve_hosts(struct export *e, int life_fd,
                       void (*event)(void *arg, const struct vhost_event *ev), void *arg,
                       char **ret_error);
// As vhost_command.
void export_command(struct export *e, const struct vhost_command *c, int fd);
