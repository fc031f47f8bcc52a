/* The library's two functions, and what its sessions have in common: devices, and with ep.share_ep_contexts the open
 * files and arenas. */
#include "plugin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EXPORTED __attribute__((visibility("default")))

void say(const factory *factory, const ort_logger *logger, int level, const char *format, ...) {
    char text[GPUTUNE_MESSAGE_BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    ort_status *status = factory->api->Logger_LogMessage(logger, level, text, "gputune", 0, EP_NAME);
    if (status) factory->api->ReleaseStatus(status);
}

ort_status *status_of(const factory *factory, const gputune_error *error) {
    char text[GPUTUNE_MESSAGE_BYTES + 64];
    if (!error->code) return NULL;
    snprintf(text, sizeof text, "gputune: %s: %s", gputune_code_name(error->code), error->message);
    const bool is_argument = error->code == GPUTUNE_INVALID_ARGUMENT || error->code == GPUTUNE_UNKNOWN_GRAPH;
    return factory->api->CreateStatus(is_argument ? ORT_INVALID_ARGUMENT : ORT_FAIL, text);
}

gputune_code passed(const factory *factory, ort_status *status, gputune_error *error) {
    if (!status) return GPUTUNE_OK;
    const gputune_code code = fail(error, GPUTUNE_INVALID_ARGUMENT, "onnxruntime refuses it: %s",
                                   factory->api->GetErrorMessage(status));
    factory->api->ReleaseStatus(status);
    return code;
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

static bool is_made_for(const gputune_file *file, const gputune_device *device) {
    const size_t count = file ? gputune_context_count(file) : 0;
    for (size_t i = 0; i < count; i++) {
        const identity *made_for = context_identity(file, i);
        if (made_for && !strcmp(made_for->platform, device->identity.platform) &&
            !strcmp(made_for->name, device->identity.name))
            return true;
    }
    return !file;
}

gputune_code take_device(factory *factory, const options *options, const gputune_file *file, opened **taken,
                         gputune_error *error) {
    const char *library = options->opencl_library, *name = options->device;
    const gputune_device_options wanted = {.library = *library ? library : NULL, .device = *name ? name : NULL,
                                           .file = file};
    gputune_device *device;
    opened *found = factory->devices;
    while (found && (strcmp(found->library, library) || strcmp(found->name, name) ||
                     !(*name || is_made_for(file, found->device))))
        found = found->next;
    if (found) return found->users++, *taken = found, GPUTUNE_OK;
    TRY(gputune_open_device(&wanted, &device, error));
    for (found = factory->devices; found; found = found->next) /* by other options the same one */
        if (found->device->id == device->id && found->device->cl.library == device->cl.library)
            return gputune_close_device(device), found->users++, *taken = found, GPUTUNE_OK;
    if (!(found = calloc(1, sizeof *found))) return gputune_close_device(device), NO_MEMORY;
    library = pool_text(&device->pool, library, strlen(library));
    name = pool_text(&device->pool, name, strlen(name));
    if (!library || !name) return gputune_close_device(device), free(found), NO_MEMORY;
    *found = (opened){factory->devices, device, library, name, 1};
    return *taken = factory->devices = found, GPUTUNE_OK;
}

void leave_device(factory *factory, opened *left) {
    if (!left || --left->users) return;
    opened **at = &factory->devices;
    while (*at != left) at = &(*at)->next;
    *at = left->next;
    gputune_close_device(left->device);
    free(left);
}

/* The hardware as which onnxruntime knows the device: a GPU of its vendor, or one made here, or the CPU. */
static ort_status *hardware_of(factory *factory, const ort_hardware *const *all, size_t count,
                               const ort_hardware **found) {
    enum { VENDOR_ID = 0x1001 }; /* CL_DEVICE_VENDOR_ID */
    const gputune_device *device = factory->first->device;
    const uint32_t vendor = (uint32_t)number_of(device, device->id, VENDOR_ID);
    const int type = !strcmp(device->identity.device_type, "gpu") ? HARDWARE_GPU
                     : device->is_cpu ? HARDWARE_CPU : HARDWARE_NPU;
    *found = NULL;
    for (size_t i = 0; i < count && !*found; i++)
        if (factory->api->HardwareDevice_Type(all[i]) == type &&
            (device->is_cpu || factory->api->HardwareDevice_VendorId(all[i]) == vendor))
            *found = all[i];
    if (!*found && factory->version >= MAKES_HARDWARE) {
        ort_status *status = factory->hardware ? NULL : factory->ep_api->CreateHardwareDevice(
            type, vendor, 0, device->identity.vendor, NULL, &factory->hardware);
        *found = factory->hardware;
        return status;
    }
    for (size_t i = 0; i < count && !*found; i++)
        if (factory->api->HardwareDevice_Type(all[i]) == HARDWARE_CPU) *found = all[i];
    return NULL;
}

static ort_status *supported_devices(ort_factory *table, const ort_hardware *const *all, size_t count,
                                     ort_ep_device **devices, size_t most, size_t *found) {
    static const options NONE = {"", "", "", "", "", "", "", "", "", ""};
    factory *factory = (struct factory *)table;
    const ort_api *api = factory->api;
    const ort_hardware *hardware = NULL;
    gputune_error error;
    ort_pairs *about;
    *found = 0;
    mutex_lock(&factory->lock);
    const bool good = factory->first || !take_device(factory, &NONE, NULL, &factory->first, &error);
    mutex_unlock(&factory->lock);
    if (!good) return say(factory, factory->logger, LEVEL_WARNING, "gputune has no device: %s", error.message), NULL;
    ort_status *status = hardware_of(factory, all, count, &hardware);
    if (status || !hardware || !most) return status;
    const identity *known = &factory->first->device->identity;
    api->CreateKeyValuePairs(&about);
    api->AddKeyValuePair(about, "opencl_device", known->name);
    api->AddKeyValuePair(about, "opencl_platform", known->platform);
    api->AddKeyValuePair(about, "driver_version", known->driver_version);
    status = factory->ep_api->CreateEpDevice(table, hardware, about, NULL, devices);
    api->ReleaseKeyValuePairs(about);
    *found = !status;
    return status;
}

/* --- sessions that share ------------------------------------------------------------------------------------------ */

gputune_code join_sharing(factory *factory, const options *options, sharing **joined, gputune_error *error) {
    const bool shares = !strcmp(options->share, "1"), stops = !strcmp(options->stop, "1");
    sharing *made = shares ? factory->sharing : NULL;
    if (!made && !(made = calloc(1, sizeof *made))) return NO_MEMORY;
    made->owners++;
    made->is_public = shares;
    if (shares) factory->sharing = made;
    if (stops) factory->sharing = NULL; /* from the next session on */
    *joined = made;
    return GPUTUNE_OK;
}

void leave_sharing(factory *factory, sharing *left) {
    if (!left || --left->owners) return;
    if (factory->sharing == left) factory->sharing = NULL;
    close_unused(factory, left);
    free(left);
}

/* Whether a graph has its arenas. */
static bool is_used(const gputune_group *group) {
    const gputune_graph *each = group->device->graphs;
    while (each && each->shared != &group->shared) each = each->next;
    return each;
}

void close_unused(factory *factory, sharing *sharing) {
    for (struct shared_group **at = &sharing->groups, *each = *at; each; each = *at) {
        if (is_used(each->group)) {
            at = &each->next;
            continue;
        }
        *at = each->next;
        gputune_close_group(each->group);
        leave_device(factory, each->device);
        free(each);
    }
    for (struct shared_file **at = &sharing->files, *each = *at; each; each = *at) {
        if (each->file->owners > 1) { /* a graph is another one */
            at = &each->next;
            continue;
        }
        *at = each->next;
        gputune_close(each->file);
        free(each);
    }
}

/* Whether a path still leads to the file that is open. */
static bool is_same(const char *path, const source *source) {
    struct stat now;
    return !stat(path, &now) && (uint64_t)now.st_size == source->nbytes &&
           now.st_mtim.tv_sec == source->written.tv_sec && now.st_mtim.tv_nsec == source->written.tv_nsec &&
           now.st_ctim.tv_sec == source->made.tv_sec && now.st_ctim.tv_nsec == source->made.tv_nsec;
}

gputune_code open_shared(sharing *sharing, const char *path, gputune_file **file, gputune_error *error) {
    for (const struct shared_file *each = sharing->files; each; each = each->next)
        if (!strcmp(each->path, path) && is_same(path, &each->file->source)) return *file = each->file, GPUTUNE_OK;
    struct shared_file *made = calloc(1, sizeof *made + strlen(path) + 1);
    if (!made) return NO_MEMORY;
    const gputune_code code = gputune_open(path, file, error);
    if (code) return free(made), code;
    strcpy(made->path, path);
    made->file = *file;
    made->next = sharing->files;
    sharing->files = made;
    return GPUTUNE_OK;
}

/* --- whether a model fits ----------------------------------------------------------------------------------------- */

char *compatibility_of(const identity *device) {
    char *text = NULL;
    for (int length = -1, times = 0; times < 2; times++) {
        length = snprintf(text, (size_t)(length + 1), "gputune format %d; %s; %s; driver %s; %s %s; %llu compute units",
                          (int)FORMAT_VERSION, device->name, device->device_version, device->driver_version,
                          device->platform, device->platform_version, (unsigned long long)device->compute_units);
        if (!text && (length < 0 || !(text = malloc((size_t)length + 1)))) return NULL;
    }
    for (char *each = text; *each; each++)
        if ((unsigned char)*each < ' ') *each = '?';
    return text;
}

static ort_status *validate(ort_factory *table, const ort_hardware *const *hardware, size_t count, const char *text,
                            int *verdict) {
    const factory *factory = (struct factory *)table;
    unsigned version = 0;
    int length = 0;
    (void)hardware, (void)count;
    *verdict = NOT_APPLICABLE;
    if (sscanf(text, "gputune format %u; %n", &version, &length) < 1 || !length || !factory->first) return NULL;
    char *here = compatibility_of(&factory->first->device->identity);
    if ((version != FORMAT_VERSION && version != REQUIRING_VERSION) || !strcmp(text + length, "no device"))
        *verdict = NOT_SUPPORTED;
    else
        *verdict = here && !strcmp(text + length, strchr(here, ';') + 2) ? SUPPORTED_OPTIMAL : PREFERS_RECOMPILATION;
    free(here);
    return NULL;
}

/* --- the factory -------------------------------------------------------------------------------------------------- */

static const char *name_of(const ort_factory *table) { return (void)table, EP_NAME; }
static const char *vendor_of(const ort_factory *table) { return (void)table, "gputune"; }
static uint32_t vendor_id(const ort_factory *table) { return (void)table, 0; }
static const char *version_of(const ort_factory *table) { return (void)table, PLUGIN_VERSION; }
static bool is_stream_aware(const ort_factory *table) { return (void)table, false; }

/* Tensors are in the memory of the CPU, which is onnxruntime's own. */
static ort_status *no_allocator(ort_factory *table, const void *memory, const ort_pairs *given, void **made) {
    return (void)table, (void)memory, (void)given, *made = NULL, NULL;
}
static void release_allocator(ort_factory *table, void *allocator) { (void)table, (void)allocator; }
static ort_status *no_transfer(ort_factory *table, void **made) { return (void)table, *made = NULL, NULL; }

static const ort_factory FACTORY = {ORT_VERSION, name_of, vendor_of, supported_devices, create_provider,
                                    release_provider, vendor_id, version_of, validate, no_allocator, release_allocator,
                                    no_transfer, is_stream_aware, no_allocator};

EXPORTED ort_status *CreateEpFactories(const char *name, const ort_base *base, const ort_logger *logger,
                                       ort_factory **factories, size_t most, size_t *count);
EXPORTED ort_status *ReleaseEpFactory(ort_factory *released);

ort_status *CreateEpFactories(const char *name, const ort_base *base, const ort_logger *logger, ort_factory **factories,
                              size_t most, size_t *count) {
    const ort_api *api = base->GetApi(ORT_VERSION);
    char text[128];
    (void)name;
    *count = 0;
    snprintf(text, sizeof text, "gputune needs onnxruntime 1.%d or newer, and this is %.32s", ORT_VERSION,
             base->GetVersionString());
    if (!api) return base->GetApi(1)->CreateStatus(ORT_FAIL, text);
    factory *made = most ? calloc(1, sizeof *made) : NULL;
    if (!made || !mutex_open(&made->lock)) return free(made), api->CreateStatus(ORT_FAIL, "gputune: no memory");
    made->table = FACTORY;
    made->api = api;
    made->ep_api = api->GetEpApi();
    made->logger = logger;
    unsigned major = 0, minor = 0;
    sscanf(base->GetVersionString(), "%u.%u", &major, &minor);
    made->version = 1000 * major + minor;
    factories[0] = &made->table;
    *count = 1;
    return NULL;
}

ort_status *ReleaseEpFactory(ort_factory *released) {
    factory *factory = (struct factory *)released;
    leave_device(factory, factory->first);
    if (factory->hardware) factory->ep_api->ReleaseHardwareDevice(factory->hardware);
    mutex_close(&factory->lock);
    free(factory);
    return NULL;
}
