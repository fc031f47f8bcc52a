// Wrap gputune.h for C++11. A call that fails throws gputune::Error. Objects close themselves in the reverse order of
// their creation, as C++ does: a graph must not outlive its device, group and memory.
#ifndef GPUTUNE_HPP
#define GPUTUNE_HPP

#include "gputune.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace gputune {

struct Error : std::runtime_error {
    explicit Error(const gputune_error &error) : std::runtime_error(error.message), code(error.code) {}
    gputune_code code;
};

// Call a function that returns a code and takes an error as its last argument.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments) {
    gputune_error error;
    if (function(arguments..., &error) != GPUTUNE_OK) throw Error(error);
}

// Own an object of gputune.h, and close it with its function. Objects can be moved, not copied.
template <typename Object, void (*close)(Object *)>
class Owned {
public:
    Object *get() const { return owned.get(); }

protected:
    template <typename Function, typename... Arguments>
    explicit Owned(Function function, Arguments... arguments) : owned(nullptr, close) {
        Object *made = nullptr;
        call(function, arguments..., &made);
        owned.reset(made);
    }

private:
    std::unique_ptr<Object, void (*)(Object *)> owned;
};

struct File : Owned<gputune_file, gputune_close> {
    explicit File(const std::string &path) : Owned(gputune_open, path.c_str()) {}
    File(const void *data, std::size_t nbytes) : Owned(gputune_open_bytes, data, nbytes) {}
};

struct Device : Owned<gputune_device, gputune_close_device> {
    explicit Device(const gputune_device_options &options = {}) : Owned(gputune_open_device, &options) {}
    explicit Device(const File &file) : Device(of(file)) {}
    std::string name() const { return gputune_device_name(get()); }
    bool is_lost() const { return gputune_is_lost(get()); }
    std::size_t nbytes() const { return gputune_device_bytes(get()); }
    void *context() const { return gputune_device_context(get()); }
    void touch() { call(gputune_touch, get()); }

private:
    static gputune_device_options of(const File &file) {
        gputune_device_options options{};
        options.file = file.get();
        return options;
    }
};

struct Memory : Owned<gputune_memory, gputune_free> {
    Memory(Device &device, std::size_t nbytes) : Owned(gputune_allocate, device.get(), nbytes) {}
    Memory(Device &device, void *data, std::size_t nbytes) : Owned(gputune_wrap, device.get(), data, nbytes) {}
    Memory(Device &device, int fd, std::uint64_t offset, std::size_t nbytes)
        : Owned(gputune_import, device.get(), fd, offset, nbytes) {}
    static Memory of_cl_mem(Device &device, void *cl_mem, std::size_t nbytes) {
        return Memory(gputune_import_cl_mem, device, cl_mem, nbytes);
    }
    static Memory of_hardware_buffer(Device &device, void *buffer, std::size_t nbytes) {
        return Memory(gputune_import_hardware_buffer, device, buffer, nbytes);
    }
    void *data() const { return gputune_memory_data(get()); }
    std::string kind() const { return gputune_memory_kind(get()); }
    void begin_host(bool write = true) { call(gputune_begin_host, get(), write); }
    void end_host() { call(gputune_end_host, get()); }

private:
    using Import = gputune_code (*)(gputune_device *, void *, std::size_t, gputune_memory **, gputune_error *);
    Memory(Import import, Device &device, void *what, std::size_t nbytes)
        : Owned(import, device.get(), what, nbytes) {}
};

struct Group : Owned<gputune_group, gputune_close_group> {
    Group(Device &device, const std::vector<const gputune_file *> &files, std::size_t streams = 1)
        : Owned(gputune_open_group, device.get(), files.data(), files.size(), streams) {}
    void grow(const File &file) { call(gputune_grow, get(), file.get()); }
};

inline void close_profile(gputune_profile *profile) { gputune_close_profile(profile, nullptr); }

struct Profile : Owned<gputune_profile, close_profile> {
    Profile(Device &device, const std::string &path, gputune_level level = GPUTUNE_DETAILED)
        : Owned(gputune_open_profile, device.get(), path.c_str(), level) {}
    // Without a file, records are kept until take() returns them.
    explicit Profile(Device &device, gputune_level level = GPUTUNE_DETAILED)
        : Owned(gputune_open_profile, device.get(), static_cast<const char *>(nullptr), level) {}
    void write_marks() { call(gputune_write_marks, get()); }
    std::vector<unsigned char> take() {
        std::size_t nbytes = 0;
        call(gputune_profile_take, get(), static_cast<void *>(nullptr), &nbytes);
        std::vector<unsigned char> data(nbytes);
        if (nbytes) call(gputune_profile_take, get(), static_cast<void *>(data.data()), &nbytes);
        data.resize(nbytes);
        return data;
    }
};

struct Power : Owned<gputune_power, gputune_close_power> {
    explicit Power(const gputune_identity &device, const char *root = nullptr)
        : Owned(gputune_open_power, device.device_type, device.vendor, device.name, root) {}
};

struct Votes : Owned<gputune_votes, gputune_close_votes> {
    Votes(Power &power, const gputune_perf_settings &settings) : Owned(gputune_open_votes, power.get(), &settings) {}
    void set(const gputune_perf_settings &settings) { call(gputune_set_votes, get(), &settings); }
    void begin(gputune_phase phase = GPUTUNE_EXECUTE) { call(gputune_begin_phase, get(), phase); }
    void end(gputune_phase phase = GPUTUNE_EXECUTE) { call(gputune_end_phase, get(), phase); }
};

inline gputune_value value(void *data, const char *name = nullptr) { return {name, data, nullptr}; }
inline gputune_value value(const Memory &memory, const char *name = nullptr) { return {name, nullptr, memory.get()}; }
using Values = std::vector<gputune_value>;

struct Graph : Owned<gputune_graph, gputune_unload> {
    Graph(Device &device, const File &file, const gputune_load_options &options = {})
        : Owned(gputune_load, device.get(), file.get(), &options) {}
    const gputune_graph_info &info() const { return *gputune_info(get()); }
    bool is_remembered(bool output, std::size_t place) const { return gputune_is_remembered(get(), output, place); }
    void run(const Values &inputs, const Values &outputs) {
        call(gputune_run, get(), inputs.data(), inputs.size(), outputs.data(), outputs.size());
    }
    void link(const char *output, Graph &second, const char *input) {
        call(gputune_link, get(), output, second.get(), input);
    }
    void run_async(const Values &inputs, const Values &outputs, gputune_callback callback, void *user) {
        call(gputune_run_async, get(), inputs.data(), inputs.size(), outputs.data(), outputs.size(), callback, user);
    }
    void record(const Profile *profile) { call(gputune_record, get(), profile == nullptr ? nullptr : profile->get()); }
    void set_one_by_one(bool one_by_one) { gputune_set_one_by_one(get(), one_by_one); }
    bool has_persistent() const { return gputune_has_persistent(get()); }
    std::string last_form() const { return gputune_last_form(get()); }
    void record_marked(const Profile &profile) { call(gputune_record_marked, get(), profile.get()); }
    void set_perf_profile(const char *preset) { call(gputune_set_perf_profile, get(), preset); }
};

// Remember what a graph makes for its next inference. A state is opened for a graph, and used by it and its like.
struct State : Owned<gputune_state, gputune_close_state> {
    explicit State(Graph &graph) : Owned(gputune_open_state, graph.get()) {}
    State copy() { return State(this); }
    void use(Graph &graph) { call(gputune_use_state, graph.get(), get()); }
    // Run the graph of those that use it that adds so many tokens, with the fewest rows in which they have room.
    void run(std::size_t tokens, const Values &inputs, const Values &outputs) {
        gputune_graph *graph = nullptr;
        call(gputune_state_graph, get(), tokens, &graph);
        call(gputune_run, graph, inputs.data(), inputs.size(), outputs.data(), outputs.size());
    }
    std::size_t length() const { return gputune_state_length(get()); }
    std::size_t capacity() const { return gputune_state_capacity(get()); }
    std::size_t nbytes() const { return gputune_state_bytes(get()); }
    void rewind(std::size_t length) { call(gputune_rewind_state, get(), length); }
    void reset() { call(gputune_reset_state, get()); }
    void read(const char *name, void *data, std::size_t nbytes) { call(gputune_read_state, get(), name, data, nbytes); }

private:
    explicit State(State *of) : Owned(gputune_copy_state, of->get()) {}
};

} // namespace gputune

#endif
