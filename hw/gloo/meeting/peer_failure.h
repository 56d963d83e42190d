// Turns Gloo's exceptions into PeerFailure, with a message that a person can read.
#pragma once

#include <gloo/common/error.h>
#include <gloo/common/logging.h>

#include <string>
#include <string_view>

#include "hw/rank/communicator.h"

namespace bucketwise {

// One line, without the paths of Gloo's source files: "Timed out waiting 200ms for ...".
std::string tidied(std::string_view gloo_message);

// Runs `step`. Gloo's exceptions become PeerFailure ("DOING: Gloo's message"); all others pass.
template <typename Step>
void with_peer_failures(const std::string& doing, const Step& step) {
    try {
        step();
    } catch (const gloo::EnforceNotMet& error) {
        throw PeerFailure(doing + ": " + tidied(error.msg()));
    } catch (const gloo::Exception& error) {
        throw PeerFailure(doing + ": " + tidied(error.what()));
    }
}

}  // namespace bucketwise
