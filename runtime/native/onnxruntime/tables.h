/* The tables of functions by which onnxruntime and its plugins call each other, as far as they are used here.
 *
 * onnxruntime only adds to the ends of its tables, and does not call what is younger than the version that a table of
 * ours names. So these places, which are those of version 1.23, are right for all later versions. Each is asserted. */
#ifndef GPUTUNE_ONNXRUNTIME_TABLES_H
#define GPUTUNE_ONNXRUNTIME_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORT_VERSION = 23, MAKES_HARDWARE = 1024 }; /* needed; and CreateHardwareDevice is there since 1.24 */
enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 }; /* EP_FAIL makes Python try providers that cannot run EPContext */
enum { LEVEL_INFO = 1, LEVEL_WARNING = 2, LEVEL_ERROR = 3 };
enum { HARDWARE_CPU = 0, HARDWARE_GPU = 1, HARDWARE_NPU = 2 };
enum { ATTRIBUTE_INT = 1, ATTRIBUTE_STRING = 5 };
enum { NOT_APPLICABLE, SUPPORTED_OPTIMAL, PREFERS_RECOMPILATION, NOT_SUPPORTED };

typedef void ort_unused(void);
typedef struct ort_status ort_status; /* NULL: nothing is wrong */
typedef struct ort_logger ort_logger;
typedef struct ort_value ort_value;
typedef struct ort_type ort_type;
typedef struct ort_shape ort_shape; /* with the type of elements */
typedef struct ort_context ort_context;
typedef struct ort_pairs ort_pairs;
typedef struct ort_session_options ort_session_options;
typedef struct ort_run_options ort_run_options;
typedef struct ort_graph ort_graph;
typedef struct ort_node ort_node;
typedef struct ort_value_info ort_value_info;
typedef struct ort_attribute ort_attribute;
typedef struct ort_hardware ort_hardware;
typedef struct ort_ep_device ort_ep_device;
typedef struct ort_support ort_support;
typedef struct ort_ep_api ort_ep_api;
typedef struct ort_ep ort_ep;
typedef struct ort_factory ort_factory;
typedef struct ort_compute ort_compute;

typedef struct ort_api {
    ort_status *(*CreateStatus)(int code, const char *message);
    ort_unused *unused1[1];
    const char *(*GetErrorMessage)(const ort_status *);
    ort_unused *unused3[48];
    ort_status *(*GetTensorMutableData)(ort_value *, void **data);
    ort_unused *unused52[3];
    ort_status *(*CastTypeInfoToTensorInfo)(const ort_type *, const ort_shape **);
    ort_unused *unused56[4];
    ort_status *(*GetTensorElementType)(const ort_shape *, int *type);
    ort_status *(*GetDimensionsCount)(const ort_shape *, size_t *rank);
    ort_status *(*GetDimensions)(const ort_shape *, int64_t *dimensions, size_t rank);
    ort_unused *unused63[2];
    ort_status *(*GetTensorTypeAndShape)(const ort_value *, ort_shape **);
    ort_unused *unused66[24];
    ort_status *(*KernelContext_GetInput)(const ort_context *, size_t place, const ort_value **);
    ort_status *(*KernelContext_GetOutput)(ort_context *, size_t place, const int64_t *shape, size_t, ort_value **);
    ort_unused *unused92[1];
    void (*ReleaseStatus)(ort_status *);
    ort_unused *unused94[5];
    void (*ReleaseTensorTypeAndShapeInfo)(ort_shape *);
    ort_unused *unused100[147];
    ort_status *(*Logger_LogMessage)(const ort_logger *, int level, const char *text, const char *file, int line,
                                     const char *function);
    ort_unused *unused248[24];
    ort_status *(*ReadOpAttr)(const ort_attribute *, int type, void *data, size_t room, size_t *nbytes);
    ort_unused *unused273[16];
    ort_status *(*GetValueInfoName)(const ort_value_info *, const char **);
    ort_status *(*GetValueInfoTypeInfo)(const ort_value_info *, const ort_type **);
    ort_unused *unused291[4];
    void (*CreateKeyValuePairs)(ort_pairs **);
    void (*AddKeyValuePair)(ort_pairs *, const char *key, const char *value);
    ort_unused *unused297[1];
    void (*GetKeyValuePairs)(const ort_pairs *, const char *const **keys, const char *const **values, size_t *count);
    ort_unused *unused299[1];
    void (*ReleaseKeyValuePairs)(ort_pairs *);
    ort_unused *unused301[6];
    int (*HardwareDevice_Type)(const ort_hardware *);
    uint32_t (*HardwareDevice_VendorId)(const ort_hardware *);
    ort_unused *unused309[8];
    const ort_ep_api *(*GetEpApi)(void);
    ort_status *(*GetTensorSizeInBytes)(const ort_value *, size_t *nbytes);
    ort_unused *unused319[15];
    ort_status *(*Graph_GetModelPath)(const ort_graph *, const char **);
    ort_unused *unused335[9];
    ort_status *(*Graph_GetNumNodes)(const ort_graph *, size_t *count);
    ort_status *(*Graph_GetNodes)(const ort_graph *, const ort_node **, size_t count);
    ort_status *(*Graph_GetParentNode)(const ort_graph *, const ort_node **);
    ort_unused *unused347[1];
    ort_status *(*Node_GetId)(const ort_node *, size_t *);
    ort_status *(*Node_GetName)(const ort_node *, const char **);
    ort_status *(*Node_GetOperatorType)(const ort_node *, const char **);
    ort_status *(*Node_GetDomain)(const ort_node *, const char **);
    ort_unused *unused352[1];
    ort_status *(*Node_GetNumInputs)(const ort_node *, size_t *count);
    ort_status *(*Node_GetInputs)(const ort_node *, const ort_value_info **, size_t count);
    ort_status *(*Node_GetNumOutputs)(const ort_node *, size_t *count);
    ort_status *(*Node_GetOutputs)(const ort_node *, const ort_value_info **, size_t count);
    ort_unused *unused357[4];
    ort_status *(*Node_GetAttributeByName)(const ort_node *, const char *name, const ort_attribute **);
    ort_unused *unused362[11];
    const char *(*GetRunConfigEntry)(const ort_run_options *, const char *key);
    ort_unused *unused374[4];
    ort_status *(*GetTensorData)(const ort_value *, const void **data);
    ort_status *(*GetSessionOptionsConfigEntries)(const ort_session_options *, ort_pairs **);
} ort_api;

struct ort_ep_api {
    ort_status *(*CreateEpDevice)(ort_factory *, const ort_hardware *, const ort_pairs *about, const ort_pairs *options,
                                  ort_ep_device **);
    ort_unused *unused1[1];
    ort_status *(*AddNodesToFuse)(ort_support *, const ort_node *const *, size_t count, const void *how);
    ort_unused *unused3[13];
    ort_status *(*CreateHardwareDevice)(int type, uint32_t vendor, uint32_t device, const char *vendor_name,
                                        const ort_pairs *, ort_hardware **);
    void (*ReleaseHardwareDevice)(ort_hardware *);
};

typedef struct ort_base {
    const ort_api *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} ort_base;

/* --- ours, which onnxruntime calls --- */

struct ort_compute { /* of a fused node */
    uint32_t version;
    ort_status *(*CreateState)(ort_compute *, void *context, void **state);
    ort_status *(*Compute)(ort_compute *, void *state, ort_context *);
    void (*ReleaseState)(ort_compute *, void *state);
};

struct ort_ep {
    uint32_t version;
    const char *(*GetName)(const ort_ep *);
    ort_status *(*GetCapability)(ort_ep *, const ort_graph *, ort_support *);
    ort_status *(*Compile)(ort_ep *, const ort_graph **, const ort_node **fused, size_t count, ort_compute **,
                           ort_node **ep_contexts);
    void (*ReleaseNodeComputeInfos)(ort_ep *, ort_compute **, size_t count);
    ort_unused *unused5[2];
    ort_status *(*SetDynamicOptions)(ort_ep *, const char *const *keys, const char *const *values, size_t count);
    ort_status *(*OnRunStart)(ort_ep *, const ort_run_options *);
    ort_status *(*OnRunEnd)(ort_ep *, const ort_run_options *, bool waits);
    ort_unused *unused10[2];
    const char *(*GetCompiledModelCompatibilityInfo)(ort_ep *, const ort_graph *);
};

struct ort_factory {
    uint32_t version;
    const char *(*GetName)(const ort_factory *);
    const char *(*GetVendor)(const ort_factory *);
    ort_status *(*GetSupportedDevices)(ort_factory *, const ort_hardware *const *, size_t count, ort_ep_device **,
                                       size_t most, size_t *found);
    ort_status *(*CreateEp)(ort_factory *, const ort_hardware *const *, const ort_pairs *const *, size_t count,
                            const ort_session_options *, const ort_logger *, ort_ep **);
    void (*ReleaseEp)(ort_factory *, ort_ep *);
    uint32_t (*GetVendorId)(const ort_factory *);
    const char *(*GetVersion)(const ort_factory *);
    ort_status *(*ValidateCompiledModelCompatibilityInfo)(ort_factory *, const ort_hardware *const *, size_t count,
                                                          const char *text, int *verdict);
    ort_status *(*CreateAllocator)(ort_factory *, const void *, const ort_pairs *, void **);
    void (*ReleaseAllocator)(ort_factory *, void *);
    ort_status *(*CreateDataTransfer)(ort_factory *, void **);
    bool (*IsStreamAware)(const ort_factory *);
    ort_status *(*CreateSyncStreamForDevice)(ort_factory *, const void *, const ort_pairs *, void **);
};

/* --- where each member is, in pointers --- */

#define AT(table, member, place) \
    typedef char place_of_##table##_##member[offsetof(table, member) == (place) * sizeof(ort_unused *) ? 1 : -1];
AT(ort_api, GetErrorMessage, 2) AT(ort_api, GetTensorMutableData, 51) AT(ort_api, CastTypeInfoToTensorInfo, 55)
AT(ort_api, GetTensorElementType, 60) AT(ort_api, GetDimensionsCount, 61) AT(ort_api, GetDimensions, 62)
AT(ort_api, GetTensorTypeAndShape, 65) AT(ort_api, KernelContext_GetInput, 90)
AT(ort_api, KernelContext_GetOutput, 91) AT(ort_api, ReleaseStatus, 93) AT(ort_api, ReleaseTensorTypeAndShapeInfo, 99)
AT(ort_api, Logger_LogMessage, 247) AT(ort_api, ReadOpAttr, 272) AT(ort_api, GetValueInfoName, 289)
AT(ort_api, GetValueInfoTypeInfo, 290) AT(ort_api, CreateKeyValuePairs, 295) AT(ort_api, AddKeyValuePair, 296)
AT(ort_api, GetKeyValuePairs, 298) AT(ort_api, ReleaseKeyValuePairs, 300) AT(ort_api, HardwareDevice_Type, 307)
AT(ort_api, HardwareDevice_VendorId, 308) AT(ort_api, GetEpApi, 317) AT(ort_api, GetTensorSizeInBytes, 318)
AT(ort_api, Graph_GetModelPath, 334) AT(ort_api, Graph_GetNumNodes, 344) AT(ort_api, Graph_GetNodes, 345)
AT(ort_api, Graph_GetParentNode, 346)
AT(ort_api, Node_GetId, 348) AT(ort_api, Node_GetName, 349) AT(ort_api, Node_GetOperatorType, 350)
AT(ort_api, Node_GetDomain, 351) AT(ort_api, Node_GetNumInputs, 353) AT(ort_api, Node_GetInputs, 354)
AT(ort_api, Node_GetNumOutputs, 355) AT(ort_api, Node_GetOutputs, 356) AT(ort_api, Node_GetAttributeByName, 361)
AT(ort_api, GetRunConfigEntry, 373) AT(ort_api, GetTensorData, 378) AT(ort_api, GetSessionOptionsConfigEntries, 379)
AT(ort_ep_api, AddNodesToFuse, 2) AT(ort_ep_api, CreateHardwareDevice, 16) AT(ort_ep_api, ReleaseHardwareDevice, 17)
AT(ort_compute, ReleaseState, 3) AT(ort_ep, ReleaseNodeComputeInfos, 4) AT(ort_ep, SetDynamicOptions, 7)
AT(ort_ep, OnRunEnd, 9) AT(ort_ep, GetCompiledModelCompatibilityInfo, 12) AT(ort_factory, GetVendorId, 6)
AT(ort_factory, ValidateCompiledModelCompatibilityInfo, 8) AT(ort_factory, CreateSyncStreamForDevice, 13)

#endif
