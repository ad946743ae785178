/* Tenon: a deep-learning compiler. The public C API. */
#ifndef TENON_H
#define TENON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status -------------------------------------------------------------------------------------------------------- */

typedef enum tn_status {
    TN_OK = 0,
    TN_INVALID,     /* the input is at fault; a diagnostic says where */
    TN_UNSUPPORTED, /* the input is legal, Tenon can't do it; a diagnostic names what */
    TN_NO_MEMORY,
    TN_IO,          /* a file could not be read or written */
    TN_MISMATCH,    /* check: results differ */
    TN_USAGE        /* the call itself is wrong (a NULL handle, a name that does not exist) */
} tn_status;

/* ---- DLPack (the layout of DLPack 1.x, declared anew; compatible with dlpack.h) ------------------------------------ */

#ifndef DLPACK_VERSION
#ifndef DLPACK_DLPACK_H_
typedef struct {
    int32_t device_type; /* 1: CPU, 2: CUDA */
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 10 float8_e4m3fn, 12 float8_e5m2 */
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major without gaps */
    uint64_t byte_offset;
} DLTensor;
#endif
#endif

typedef struct tn_session tn_session;

#ifdef __cplusplus
}
#endif
#endif
