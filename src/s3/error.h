// SPDX-License-Identifier: Apache-2.0
// What the store's errors mean: one table from S3's error codes (and, for answers without one,
// from HTTP status codes) to an errno, to what a client should do about it, and to a sentence for
// people. The only place where errors of the store become errno values.
#pragma once

#include "base/base.h"

enum s3_class {
    S3_OK,
    S3_FATAL,       // asking again gives the same answer
    S3_RETRY,       // passes by itself
    S3_THROTTLED,   // passes when less is asked
    S3_PLACE,       // the bucket is elsewhere: another region or endpoint
    S3_CLOCK,       // our clock is wrong
    S3_CREDENTIALS, // expired or unknown: fetch them anew
    S3_LEARNED,     // the outcome of the last three when the next attempt will be a different one
};

// code, errno, class, advice ("" where the code says it all)
#define S3_ERROR_TABLE(X)                                                                          \
    X(AccessDenied, EACCES, FATAL,                                                                 \
      "these credentials may not do this; check the policies of user and bucket, and whether "     \
      "its requester pays (--requester-pays)")                                                     \
    X(AccountProblem, EACCES, FATAL, "there is a problem with the account; ask the provider")      \
    X(AllAccessDisabled, EACCES, FATAL, "the owner has disabled all access to it")                 \
    X(AuthorizationHeaderMalformed, EACCES, PLACE, "check the region")                             \
    X(BadDigest, EIO, RETRY, "")                                                                   \
    X(BandwidthLimitExceeded, EIO, THROTTLED, "")                                                  \
    X(ExpiredToken, EACCES, CREDENTIALS, "the session token has expired; get a new one")           \
    X(ExpiredTokenException, EACCES, CREDENTIALS, "the session token has expired; get a new one")  \
    X(IllegalLocationConstraintException, EIO, PLACE, "check the region")                          \
    X(IncompleteBody, EIO, RETRY, "")                                                              \
    X(InternalError, EIO, RETRY, "")                                                               \
    X(InvalidAccessKeyId, EACCES, CREDENTIALS, "the store does not know this access key")          \
    X(InvalidBucketName, EINVAL, FATAL, "check the bucket's name")                                 \
    X(InvalidObjectState, EIO, FATAL, "the object is archived; restore it before reading")         \
    X(InvalidRange, ERANGE, FATAL, "")                                                             \
    X(InvalidRegion, EIO, PLACE, "check the region")                                               \
    X(InvalidRequest, EINVAL, FATAL, "")                                                           \
    X(InvalidSecurity, EACCES, FATAL, "check the credentials")                                     \
    X(InvalidToken, EACCES, CREDENTIALS, "the session token is not valid; get a new one")          \
    X(KeyTooLongError, ENAMETOOLONG, FATAL, "")                                                    \
    X(MethodNotAllowed, EPERM, FATAL, "")                                                          \
    X(NoSuchBucket, ENODEV, FATAL, "check the bucket's name and the endpoint")                     \
    X(NoSuchKey, ENOENT, FATAL, "there is no such object")                                         \
    X(NoSuchVersion, ENOENT, FATAL, "")                                                            \
    X(NotFound, ENOENT, FATAL, "")                                                                 \
    X(NotImplemented, EOPNOTSUPP, FATAL, "the store cannot do this")                               \
    X(NotSignedUp, EACCES, FATAL, "the account is not signed up for this service")                 \
    X(OperationAborted, EIO, RETRY, "")                                                            \
    X(PermanentRedirect, EIO, PLACE, "give the bucket's own endpoint or region")                   \
    X(PreconditionFailed, ESTALE, FATAL, "the object has changed")                                 \
    X(Redirect, EIO, PLACE, "give the bucket's own endpoint or region")                            \
    X(RequestExpired, EACCES, CLOCK, "set the clock")                                              \
    X(RequestLimitExceeded, EIO, THROTTLED, "")                                                    \
    X(RequestThrottled, EIO, THROTTLED, "")                                                        \
    X(RequestTimeout, EIO, RETRY, "")                                                              \
    X(RequestTimeTooSkewed, EACCES, CLOCK, "set the clock")                                        \
    X(ServiceUnavailable, EIO, THROTTLED, "")                                                      \
    X(SignatureDoesNotMatch, EACCES, FATAL, "check the secret key")                                \
    X(SlowDown, EIO, THROTTLED, "")                                                                \
    X(TemporaryRedirect, EIO, PLACE, "give the bucket's own endpoint or region")                   \
    X(Throttling, EIO, THROTTLED, "")                                                              \
    X(ThrottlingException, EIO, THROTTLED, "")                                                     \
    X(TokenRefreshRequired, EACCES, CREDENTIALS, "")                                               \
    X(TooManyRequests, EIO, THROTTLED, "")

struct s3_error_entry {
    const char *code; // "" for those found by status
    int error;        // positive errno
    enum s3_class class;
    const char *advice;
};

// By code; when that is empty or unknown, by HTTP status. Never NULL.
const struct s3_error_entry *s3_error_find(const char *code, int status);
