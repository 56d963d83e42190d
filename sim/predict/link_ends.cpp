#include "sim/predict/link_ends.h"

#include <optional>
#include <utility>

namespace bucketwise {
namespace {

// The cap that is advised; none: the default.
std::optional<Bytes> advised_cap(const Prediction& prediction) {
    const bool leave = prediction.keep_default || prediction.default_is_fastest;
    return leave ? std::nullopt : prediction.sweep[prediction.best].cap;
}

}  // namespace

std::vector<LinkEnd> link_ends(const StepInput& input, const SyncRequest& request,
                               const std::vector<Bytes>& caps, const LinkPreset& preset,
                               const Prediction& prediction) {
    const std::optional<Bytes> choice = advised_cap(prediction);
    std::vector<LinkEnd> ends;
    for (const PresetEnd which : {PresetEnd::slow, PresetEnd::fast}) {
        StepInput other = input;
        other.link = preset_link(preset, which);
        const Prediction there = predict(other, request, caps, [](double) {});
        LinkEnd end;
        end.end = which;
        end.best = there.fastest();
        end.with_choice =
            choice || !has_cap(request)
                ? Evaluator(other, request).evaluate(choice).times.step()
                : Evaluator(other, default_request_of(request)).evaluate(choice).times.step();
        ends.push_back(std::move(end));
    }
    return ends;
}

}  // namespace bucketwise
