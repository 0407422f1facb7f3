// SPDX-License-Identifier: Apache-2.0
// S3's error codes with their status and text ("Error responses", Amazon S3 API Reference).
#pragma once

#define S3_ERRORS(X)                                                                               \
    X(AccessDenied, 403, "Access Denied")                                                          \
    X(AuthorizationHeaderMalformed, 400, "The authorization header is malformed")                  \
    X(AuthorizationQueryParametersError, 400, "Error parsing the query parameters")                \
    X(BadDigest, 400, "The Content-MD5 or checksum you specified did not match what we received.") \
    X(BucketAlreadyOwnedByYou, 409, "Your previous request to create the bucket succeeded.")       \
    X(BucketNotEmpty, 409, "The bucket you tried to delete is not empty.")                         \
    X(EntityTooLarge, 400, "Your proposed upload exceeds the maximum allowed size.")               \
    X(EntityTooSmall, 400, "Your proposed upload is smaller than the minimum allowed size.")       \
    X(ExpiredToken, 400, "The provided token has expired.")                                        \
    X(IncompleteBody, 400, "The request body ended before Content-Length bytes had come.")         \
    X(InternalError, 500, "We encountered an internal error. Please try again.")                   \
    X(InvalidAccessKeyId, 403,                                                                     \
      "The AWS access key Id you provided does not exist in our records.")                         \
    X(InvalidArgument, 400, "Invalid Argument")                                                    \
    X(InvalidBucketName, 400, "The specified bucket is not valid.")                                \
    X(InvalidObjectState, 403, "The operation is not valid for the object's storage class")        \
    X(InvalidPart, 400, "One or more of the specified parts could not be found.")                  \
    X(InvalidPartOrder, 400, "The list of parts was not in ascending order.")                      \
    X(InvalidRange, 416, "The requested range is not satisfiable")                                 \
    X(InvalidRequest, 400, "Invalid Request")                                                      \
    X(InvalidToken, 400, "The provided token is malformed or otherwise invalid.")                  \
    X(InvalidURI, 400, "Couldn't parse the specified URI.")                                        \
    X(KeyTooLongError, 400, "Your key is too long.")                                               \
    X(MalformedXML, 400, "The XML you provided was not well-formed or did not validate.")          \
    X(MethodNotAllowed, 405, "The specified method is not allowed against this resource.")         \
    X(MissingContentLength, 411, "You must provide the Content-Length HTTP header.")               \
    X(NoSuchBucket, 404, "The specified bucket does not exist")                                    \
    X(NoSuchKey, 404, "The specified key does not exist.")                                         \
    X(NoSuchUpload, 404, "The specified multipart upload does not exist.")                         \
    X(NotImplemented, 501, "A header you provided implies functionality that is not implemented")  \
    X(PermanentRedirect, 301, "The bucket must be addressed using the specified endpoint.")        \
    X(PreconditionFailed, 412, "At least one of the pre-conditions you specified did not hold")    \
    X(RequestTimeTooSkewed, 403,                                                                   \
      "The difference between the request time and the current time is too large.")                \
    X(SignatureDoesNotMatch, 403,                                                                  \
      "The request signature we calculated does not match the signature you provided.")            \
    X(ServiceUnavailable, 503, "Service is unable to handle request.")                             \
    X(SlowDown, 503, "Please reduce your request rate.")                                           \
    X(TemporaryRedirect, 307, "Please re-send this request to the specified temporary endpoint.")  \
    X(XAmzContentSHA256Mismatch, 400, "The provided x-amz-content-sha256 does not match the body.")

enum s3_error {
    S3_OK,
#define X(code, status, message) S3_##code,
    S3_ERRORS(X)
#undef X
        S3_ERROR_COUNT
};

const char *s3_error_code(enum s3_error e);
int s3_error_status(enum s3_error e);
const char *s3_error_message(enum s3_error e);
