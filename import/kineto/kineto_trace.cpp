#include "import/kineto/kineto_trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <simdjson.h>

#include "import/source/json_objects.h"
#include "import/source/plain_text.h"
#include "import/trace/shape_text.h"
#include "import/trace/trace_builder.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

namespace dom = simdjson::dom;

std::string_view text_of(dom::element value) {
    std::string_view text;
    return value.get(text) == simdjson::SUCCESS ? text : std::string_view();
}

// A number, or a text of one; nothing for others.
std::optional<std::int64_t> whole_number(dom::element value) {
    constexpr std::int64_t most = std::int64_t{1} << 62;
    constexpr double most_of_doubles = 4e18;
    std::int64_t number = -1;
    if (value.get(number) == simdjson::SUCCESS) {
        return std::min(number, most);
    }
    if (value.is_uint64()) {
        return most;
    }
    if (double fraction = 0; value.get(fraction) == simdjson::SUCCESS) {
        return std::abs(fraction) < most_of_doubles ? static_cast<std::int64_t>(fraction) : -1;
    }
    if (value.is_string()) {
        const std::string_view text = text_of(value);
        std::from_chars(text.data(), text.data() + text.size(), number);
        return number;
    }
    return std::nullopt;
}

// The elements of one tensor's shape; -1: too many, or it is no shape.
std::int64_t elements_of(dom::array shape) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    std::int64_t product = 1;
    for (const dom::element size : shape) {
        const std::int64_t number = whole_number(size).value_or(-1);
        if (number < 0 || number > most || product < 0 ||
            product > most / std::max<std::int64_t>(number, 1)) {
            return -1;
        }
        product *= number;
    }
    return product;
}

// The elements of a list of tensors count together; -1: the input is no such list.
std::int64_t elements_of_list(dom::array shapes) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    std::int64_t sum = -1;
    for (const dom::element shape : shapes) {
        if (dom::array sizes; shape.get(sizes) == simdjson::SUCCESS) {
            if (const std::int64_t elements = elements_of(sizes); elements >= 0) {
                sum = std::min(std::max<std::int64_t>(sum, 0) + elements, most);
            }
        }
    }
    return sum;
}

// The blocks of a grid; a product of more than a grid has is none.
std::int32_t blocks_of(dom::array grid) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    std::int64_t blocks = -1;
    for (const dom::element size : grid) {
        const std::int64_t dimension = whole_number(size).value_or(-1);
        const std::int64_t so_far = std::max<std::int64_t>(blocks, 1);
        blocks = dimension >= 1 && dimension <= most / so_far ? so_far * dimension : -1;
    }
    return static_cast<std::int32_t>(blocks);
}

class KinetoReader {
  public:
    KinetoReader(const ByteSource& source, const std::string& file)
        : objects_(source, {"traceEvents"}, file),
          kept_(file, "/traceEvents", "profile fewer steps: schedule(wait=1, warmup=1, active=3)"),
          builder_(file, kept_),
          head_(builder_.head()) {}

    ProfilerTrace read() {
        while (const std::optional<dom::array> events = objects_.next()) {
            for (const dom::element event : *events) {
                add(event);
            }
            if (!objects_.is_list()) {
                break;
            }
        }
        if (!objects_.is_list()) {
            throw InputError(head_.file, "", "a trace: an object with traceEvents, or a list",
                             "neither");
        }
        if (const std::optional<dom::element> around = objects_.around()) {
            read_head(*around);
        }
        return builder_.take();
    }

  private:
    void read_head(dom::object around) {
        for (const auto& [key, value] : around) {
            if (key == "distributedInfo" && value.is_object()) {
                read_distributed(value);
            } else if (key == "deviceProperties") {
                read_devices(value);
            }
        }
    }

    void read_distributed(dom::object info) {
        for (const auto& [key, value] : info) {
            if (value.is_double() && double(value) != std::floor(double(value))) {
                throw InputError(head_.file, "/distributedInfo/" + std::string(key),
                                 "a whole number", fmt::format("{}", double(value)));
            }
            if (value.is_number() && key == "rank") {
                head_.rank = whole_number(value);
            } else if (value.is_number() && key == "world_size") {
                head_.world_size = whole_number(value);
            } else if (value.is_string() && key == "backend") {
                head_.backend = text_of(value);
            } else if (value.is_string() && key == "nccl_version") {
                head_.nccl_version = text_of(value);
            }
        }
    }

    void read_devices(dom::element devices) {
        dom::array list;
        if (devices.get(list) == simdjson::SUCCESS) {
            for (const dom::element device : list) {
                std::string_view name;
                if (head_.device.empty() && device["name"].get(name) == simdjson::SUCCESS) {
                    head_.device = name;
                }
            }
        }
    }

    // --- events ---

    void add(dom::object event) {
        raw_ = RawEvent();
        lists_have_shapes_ = false;
        elements_out_ = -1;
        sequence_number_ = -1;
        forward_thread_ = -1;
        std::string_view phase;
        std::string_view category;
        std::optional<double> begin_us;
        double duration_us = 0;
        for (const auto& [key, value] : event) {
            if (key == "ph") {
                phase = text_of(value);
            } else if (key == "cat") {
                category = text_of(value);
            } else if (key == "name") {
                raw_.name = text_of(value);
            } else if (key == "pid") {
                raw_.process = text_or_number(value, process_);
            } else if (key == "tid") {
                raw_.thread = text_or_number(value, thread_);
            } else if (double us = 0; key == "ts" && value.get(us) == simdjson::SUCCESS) {
                begin_us = us;
            } else if (key == "dur" && value.get(us) == simdjson::SUCCESS) {
                duration_us = us;
            } else if (key == "args" && value.is_object()) {
                for (const auto& [argument, of_argument] : dom::object(value)) {
                    take_argument(argument, of_argument);
                }
            }
        }
        const std::int64_t place = head_.events_read++;
        if (phase == "X" && begin_us) {
            keep(category, *begin_us, duration_us, place);
        }
    }

    void keep(std::string_view category_text, double begin_us, double duration_us,
              std::int64_t place) {
        // Without Kineto, PyTorch writes its profile with no categories.
        const Category category = category_text.empty() && raw_.process == "CPU functions"
                                      ? Category::operation
                                      : category_of(category_text);
        const std::optional<TraceEventKind> kind = kind_of(category, raw_.name);
        if (!kind) {
            if (head_.unread_device.empty()) {
                head_.unread_device = unread_device(category_text);
            }
            return;
        }
        raw_.names_work = category == Category::operation;
        // A node of backward has the number of its forward, and that one's thread.
        raw_.is_forward = sequence_number_ >= 0 && forward_thread_ == 0;
        origin_us_ = origin_us_.value_or(begin_us);
        raw_.event.begin_ns = nanoseconds(begin_us - *origin_us_);
        raw_.event.end_ns = raw_.event.begin_ns + nanoseconds(std::max(duration_us, 0.0));
        // A list without shapes, as Kineto writes long ones, is no tensor of one element.
        if (raw_.type == "TensorList" && !lists_have_shapes_) {
            raw_.event.elements = -1;
        }
        if (raw_.call.elements < 0 && elements_out_ >= 0) {
            raw_.call.elements = elements_out_;
            raw_.has_call = true;
        }
        builder_.add(*kind, raw_, place);
    }

    // A time far beyond a run's stays so, for the builder to refuse.
    static std::int64_t nanoseconds(double us) {
        constexpr double beyond_us = 2e12;
        return std::llround(std::clamp(us, -beyond_us, beyond_us) * 1e3);
    }

    static std::string_view text_or_number(dom::element value, std::string& buffer) {
        if (value.is_number()) {
            buffer = fmt::format_int(*whole_number(value)).c_str();
            return buffer;
        }
        return text_of(value);
    }

    void take_argument(std::string_view key, dom::element value) {
        const auto is = [&](std::string_view name) {
            return std::ranges::equal(key, name, {}, lower_letter);
        };
        const auto take = [&](std::int64_t& number) {
            number = whole_number(value).value_or(number);
        };
        if (is("correlation")) {
            take(raw_.event.correlation);
        } else if (is("external id")) {
            take(raw_.event.external_id);
        } else if (is("bytes")) {
            take(raw_.event.bytes);
        } else if (is("stream")) {
            raw_.stream = text_or_number(value, stream_);
        } else if (is("grid") && value.is_array()) {
            raw_.event.blocks = blocks_of(value);
        } else if (is("sequence number")) {
            take(sequence_number_);
        } else if (is("fwd thread id")) {
            take(forward_thread_);
        } else if (is("input dims")) {
            take_shapes(value);
        } else if (is("input type") && value.is_array()) {
            for (const dom::element type : dom::array(value)) {
                raw_.type = raw_.type.empty() ? text_of(type) : raw_.type;
            }
        } else {
            take_call(is, value);
        }
    }

    template <typename Is>
    void take_call(Is is, dom::element value) {
        CollectiveCall& call = raw_.call;
        const auto is_number = [&] { return value.is_number(); };
        if (is("in msg nelems") && is_number()) {
            call.elements = *whole_number(value);
            raw_.has_call = true;
        } else if (is("out msg nelems") && is_number()) {
            elements_out_ = *whole_number(value);
        } else if (is("group size") && is_number()) {
            call.group_size = *whole_number(value);
        } else if (is("collective name") && value.is_string()) {
            call.name = text_of(value);
            raw_.has_call = true;
        } else if (is("dtype")) {
            call.dtype = text_of(value);
        } else if (is("process group name")) {
            call.group = text_of(value);
        }
    }

    // The shapes of an operation's inputs; the first that has elements counts.
    void take_shapes(dom::element value) {
        TraceEvent& event = raw_.event;
        if (value.is_string()) {
            event.elements = elements_of_shapes(text_of(value)).first;
        }
        dom::array inputs;
        if (value.get(inputs) != simdjson::SUCCESS) {
            return;
        }
        for (const dom::element input : inputs) {
            dom::array shape;
            if (event.elements >= 0 || input.get(shape) != simdjson::SUCCESS) {
                continue;
            }
            const std::int64_t of_list = elements_of_list(shape);
            lists_have_shapes_ |= of_list >= 0;
            event.elements = of_list >= 0 ? of_list : elements_of(shape);
            const std::int64_t rows =
                shape.size() > 0 ? whole_number(shape.at(0)).value_or(-1) : -1;
            if (event.rows < 0 && rows <= std::numeric_limits<std::int32_t>::max()) {
                event.rows = static_cast<std::int32_t>(rows);
            }
        }
    }

    JsonObjects objects_;
    KeptBytes kept_;
    TraceBuilder builder_;
    TraceHead& head_;
    std::optional<double> origin_us_;  // the first event's
    RawEvent raw_;
    std::int64_t elements_out_ = -1;  // of a collective; -1: not said
    bool lists_have_shapes_ = false;
    // Autograd's number of an operation, and its forward's thread in backward; -1: not said.
    std::int64_t sequence_number_ = -1;
    std::int64_t forward_thread_ = -1;
    // Texts of numbers that `raw_` refers to.
    std::string process_;
    std::string thread_;
    std::string stream_;
};

}  // namespace

ProfilerTrace read_kineto_trace(const ByteSource& source, const std::string& file) {
    constexpr std::size_t enough = 4096;
    const auto [begin, whole] = peeked(source, enough);
    if (begin.find("\"GROUP_API\"") != std::string::npos ||
        begin.find("\"KERNEL_LAUNCH\"") != std::string::npos) {
        throw InputError(file, "", "a trace of PyTorch's profiler",
                         "one of NCCL's profiler plugin, which has collectives and no computing");
    }
    return KinetoReader(whole, file).read();
}

}  // namespace bucketwise
