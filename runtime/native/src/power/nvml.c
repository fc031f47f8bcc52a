/* Locked clocks of NVIDIA's GPUs, by the driver's NVML, if it is there: docs.nvidia.com/deploy/nvml-api. Clocks are in
 * MHz and locked to a range, which takes root. A lock outlives its process and cannot be read, so a clock goes back to
 * the driver's own choice. Memory is locked for a bus vote only: a lock below the top costs bandwidth. */
#include "power.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHICS = 0, MEMORY = 2 }; /* nvmlClockType_t */
static const char NAME[] = "libnvidia-ml.so.1", NO_LOCK[] = "default";

struct nvml {
    void *library;
    int (*init)(void), (*shutdown)(void), (*count)(unsigned *), (*handle)(unsigned, void **);
    int (*memory_clocks)(void *, unsigned *, unsigned *);
    int (*graphics_clocks)(void *, unsigned, unsigned *, unsigned *);
    int (*clock)(void *, int, unsigned *);
    int (*lock[2])(void *, unsigned, unsigned), (*reset[2])(void *); /* of core, of memory */
};

struct lock {
    const struct nvml *nvml;
    void *device;
    bool of_memory;
};

static bool bind(struct nvml *nvml) {
    const struct {
        const char *name;
        void *place;
    } functions[] = {
        {"nvmlInit_v2", &nvml->init},
        {"nvmlShutdown", &nvml->shutdown},
        {"nvmlDeviceGetCount_v2", &nvml->count},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->handle},
        {"nvmlDeviceGetSupportedMemoryClocks", &nvml->memory_clocks},
        {"nvmlDeviceGetSupportedGraphicsClocks", &nvml->graphics_clocks},
        {"nvmlDeviceGetClockInfo", &nvml->clock},
        {"nvmlDeviceSetGpuLockedClocks", &nvml->lock[0]},
        {"nvmlDeviceSetMemoryLockedClocks", &nvml->lock[1]},
        {"nvmlDeviceResetGpuLockedClocks", &nvml->reset[0]},
        {"nvmlDeviceResetMemoryLockedClocks", &nvml->reset[1]},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(nvml->library, functions[i].name);
        if (!found) return false;
        memcpy(functions[i].place, &found, sizeof found);
    }
    return nvml->init() == 0;
}

static void add_lock(steering *steering, control made, actuator *actuator, void *device, unsigned index) {
    char path[64];
    struct lock *lock = pool_take(&steering->pool, 1, sizeof *lock);
    made.kind = LOCK;
    made.unit_hz = 1e6;
    made.label = made.corners == CORE ? "core" : "bus";
    const int length = snprintf(path, sizeof path, "/nvml/%u/%s_locked_clocks", index, made.label);
    const char *kept = pool_text(&steering->pool, path, (size_t)length);
    const control *added = lock && kept ? add_control(steering, made, actuator, kept, NULL) : NULL;
    if (!added) return;
    *lock = (struct lock){steering->nvml, device, made.corners == BUS};
    added->files[0]->lock = lock;
    added->files[0]->write_only = true;
    strcpy(added->files[0]->original, NO_LOCK);
    strcpy(added->files[0]->now, NO_LOCK);
}

static void add_gpu(steering *steering, void *device, unsigned index) {
    const struct nvml *nvml = steering->nvml;
    unsigned clocks[MOST_FREQUENCIES], count = MOST_FREQUENCIES, highest = 0;
    control core = {.corners = CORE}, memory = {.corners = BUS};
    for (unsigned i = nvml->memory_clocks(device, &count, clocks) ? count : 0; i < count; i++) {
        add_step(&memory, clocks[i]);
        highest = clocks[i] > highest ? clocks[i] : highest;
    }
    count = MOST_FREQUENCIES;
    for (unsigned i = nvml->graphics_clocks(device, highest, &count, clocks) ? count : 0; i < count; i++)
        add_step(&core, clocks[i]);
    if (!core.step_count && !memory.step_count) return;
    const uint64_t clock = 1u << CORE | 1u << HELD | 1u << MODE, bus = memory.step_count ? 1u << BUS : 0;
    actuator *actuator = add_actuator(steering, "nvml", clock | bus);
    add_lock(steering, core, actuator, device, index);
    add_lock(steering, memory, actuator, device, index);
}

void add_nvml(steering *steering) {
    struct nvml *nvml = calloc(1, sizeof *nvml);
    unsigned count = 0;
    if (nvml && (nvml->library = dlopen(NAME, RTLD_NOW | RTLD_LOCAL)) && bind(nvml)) {
        steering->nvml = nvml;
        if (nvml->count(&count)) count = 0;
        for (unsigned i = 0; i < count; i++) {
            void *device = NULL;
            if (nvml->handle(i, &device) == 0) add_gpu(steering, device, i);
        }
        return;
    }
    if (nvml && nvml->library) dlclose(nvml->library);
    free(nvml);
}

void nvml_close(struct nvml *nvml) {
    if (!nvml) return;
    nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}

static int errno_of(int status) { /* nvmlReturn_t */
    switch (status) {
    case 0: return 0;
    case 2: return EINVAL;
    case 3: return ENOTSUP;
    case 4: return EPERM;
    case 15: return ENODEV;
    default: return EIO;
    }
}

int nvml_write(const file *file) {
    const struct lock *lock = file->lock;
    unsigned least = 0, most = 0;
    if (sscanf(file->wanted, "%9u %9u", &least, &most) == 2)
        return errno_of(lock->nvml->lock[lock->of_memory](lock->device, least, most));
    return errno_of(lock->nvml->reset[lock->of_memory](lock->device));
}

double nvml_now_hz(const struct lock *lock) {
    unsigned mhz = 0;
    return lock->nvml->clock(lock->device, lock->of_memory ? MEMORY : GRAPHICS, &mhz) ? 0 : mhz * 1e6;
}
