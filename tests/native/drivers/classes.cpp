// Runs a context by the classes of gputune.hpp.
#include <gputune.hpp>
#include <cstdio>
int main(int, char **arguments) {
    std::vector<float> x(64, 3.0f), y(64);
    gputune::File file(arguments[1]);
    gputune::Device device(file);
    gputune::Memory given(device, 256);
    gputune::Memory moved = std::move(given);
    static_cast<float *>(moved.data())[63] = 4.0f;
    {
        gputune::Graph graph(device, file);
        gputune::Profile profile(device);
        graph.record(&profile);
        graph.run({gputune::value(moved)}, {gputune::value(y.data(), "y")});
        std::printf("%g\n", y[63]);
        const bool first = !profile.take().empty(), second = profile.take().empty();
        std::printf("%d %d\n", first, second);
        try {
            graph.run({gputune::value(x.data(), "z")}, {});
        } catch (const gputune::Error &error) {
            std::printf("%s: %s\n", gputune_code_name(error.code), error.what());
        }
    }
}
