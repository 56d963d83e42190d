#include "sim/predict/link_ends.h"

#include <utility>

namespace bucketwise {

std::vector<LinkEnd> link_ends(const StepInput& input, const SyncRequest& request,
                               const std::vector<Bytes>& caps, const LinkPreset& preset,
                               const Prediction& prediction) {
    const Cap choice = prediction.advised().cap;
    const bool leaves_default = choice.is_default() && has_cap(request);
    std::vector<LinkEnd> ends;
    for (const PresetEnd which : {PresetEnd::slow, PresetEnd::fast}) {
        StepInput other = input;
        other.link = preset_link(preset, which);
        const Prediction there = predict(other, request, caps, [](double) {});
        LinkEnd end;
        end.end = which;
        end.best = there.fastest();
        end.with_choice = Evaluator(other, leaves_default ? without_caps(request) : request)
                              .evaluate(choice)
                              .times.step();
        ends.push_back(std::move(end));
    }
    return ends;
}

}  // namespace bucketwise
