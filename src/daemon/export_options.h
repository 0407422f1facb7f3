// SPDX-License-Identifier: Apache-2.0
// daemon/: the programs' shared middle: options of an export, the configuration file, the
// supervisor with its broker, the worker that puts an export's layers together, the control
// socket and metrics. Used by cli/ and the programs; may use every layer below.
//
// This header: what one export can be told, whether on a command line ("--memory 1G"), in
// /etc/fstab ("memory=1G") or in os2gd's configuration ("memory = 1G"). One table holds every
// option's name, meaning and checks.
#pragma once

#include "base/buf.h"
#include "gdd/region.h"
#include "s3/credentials.h"
#include "s3/settings.h"

#include <sys/types.h>

struct export_options {
    char *source;    // as given: "s3://bucket/prefix"
    char *directory; // absolute, or NULL when this is not for a mount
    struct s3_settings s3;
    char *prefix; // below the bucket: "" or "a/b/"

    uint32_t mounter; // whose daemon it is
    uint32_t uid, gid, file_mode, dir_mode;
    uint64_t metadata_ttl_ns; // UINT64_MAX: for ever
    uint64_t negative_ttl_ns; // UINT64_MAX: for ever
    bool direct_io;
    uint64_t read_ahead; // largest stream window; 0: the default
    bool no_read_ahead;
    uint64_t metadata_memory; // 0: the default
    bool allow_other, allow_root;
    struct buf kernel_options; // "noexec,noatime"

    char *socket;           // absolute path of the vhost-user socket, "none", or NULL: not said
    uint32_t socket_mode;   // UINT32_MAX: not said
    uint32_t socket_group;  // UINT32_MAX: that of the process
    uint32_t *socket_allow; // peers' users
    size_t n_socket_allow;  // 0: not said
    char *socket_tag;       // what the device says its tag is, or NULL
    struct region_file *gpu_memory; // files of a host's that are a GPU's memory
    size_t n_gpu_memory;
    uint32_t gdd_group; // of .os2g/gdd; 0: none

    uint64_t memory;
    unsigned threads; // data loops; 0: chosen by export_options_complete
    char *log_level, *log_directory;

    // What was set, as "name=value" each ended by a zero byte: how a worker is told.
    struct buf given;
};

enum export_option_group {
    EXPORT_GROUP_STORE = 1,       // which server and bucket
    EXPORT_GROUP_CREDENTIALS = 2, // whose rights
    EXPORT_GROUP_TRANSFER = 4,    // how hard the store is asked
    EXPORT_GROUP_FILES = 8,       // what the mount looks like
    EXPORT_GROUP_MEMORY = 16,     // memory, threads, pre-reading
    EXPORT_GROUP_SOCKET = 32,     // hosts that share memory: virtual machines, libos2g
    EXPORT_GROUP_LOG = 64,
    EXPORT_GROUP_ALL = 127,
};

struct export_option {
    const char *name;  // "endpoint-url"
    const char *value; // what its value is called in help; NULL: a switch
    const char *help;
    enum export_option_group group;
    int kind;
    size_t offset;
};

extern const struct export_option export_option_table[]; // ends with a NULL name
const char *export_option_group_title(enum export_option_group group);

void export_options_init(struct export_options *o);
// Who owns the files unless an option says otherwise; to be called first.
void export_options_set_owner(struct export_options *o, uid_t uid, gid_t gid);
void export_options_fini(struct export_options *o);

// name: '_' and '-' are the same. value NULL: a switch is turned on. Relative paths are taken
// from the current directory. -ENOENT: no such option; -EINVAL: not with this value; each with a
// sentence in *ret_error.
int export_options_set(struct export_options *o, const char *name, const char *value,
                       char **ret_error);
// The option's name most like name, or NULL.
const char *export_option_nearest(const char *name);

// "s3://bucket/prefix"; -EINVAL with a sentence.
int export_options_set_source(struct export_options *o, const char *source, char **ret_error);
void export_options_set_directory(struct export_options *o, const char *directory); // absolute

// A mount has a socket unless told otherwise: sets what was not said, to path (absolute, checked)
// or, when that is NULL, to the one where libos2g looks for it.
int export_options_default_socket(struct export_options *o, const char *path, char **ret_error);
bool export_options_offers_socket(const struct export_options *o);
// Names the export among others: its directory or, where there is no mount, its socket.
const char *export_options_place(const struct export_options *o);

// Fills in defaults that depend on each other and checks that all fits together.
int export_options_complete(struct export_options *o, char **ret_error);

// Sets all that is in given (of another process, len bytes). -EINVAL with a sentence.
int export_options_replay(struct export_options *o, const char *given, size_t len,
                          char **ret_error);

// What credentials are to be looked for; its strings are o's.
struct credentials_config export_options_credentials(const struct export_options *o);
