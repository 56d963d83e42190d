#include "import/kineto/kineto_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <istream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>
#include <nlohmann/json.hpp>

#include "import/kineto/event_window.h"
#include "import/source/guarded_buffer.h"
#include "import/trace/trace_builder.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr std::size_t deepest = 100;
// Fewer, as what is deeper is left to the JSON library, together with all that says what is wrong.
constexpr std::size_t deepest_in_window = 90;

// One event as the file has it.
struct KinetoEvent : RawEvent {
    std::string phase;
    std::string category;
    bool has_time = false;
    std::int64_t elements_out = -1;  // of a collective; -1: not said
};

constexpr char lower_letter(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(), lower_letter);
    return text;
}

// Elements of the first shape of a text such as "[[64, 3, 7, 7], [64]]"; -1: it has none.
std::int64_t elements_in_text(std::string_view text) {
    if (text.substr(0, 1) != "[") {
        return -1;
    }
    constexpr std::int64_t most = std::int64_t{1} << 40;
    std::size_t at = text.find_first_not_of("[ ");
    std::int64_t product = -1;
    while (at < text.size()) {
        std::int64_t size = 0;
        const auto [end, error] =
            std::from_chars(text.data() + at, text.data() + text.size(), size);
        if (error != std::errc{} || size < 0 || size > most || product > most) {
            break;
        }
        product = product < 0 ? size : product * size;
        at = text.find_first_not_of(", ", static_cast<std::size_t>(end - text.data()));
    }
    return product;
}

// What is looked at of an event, and of its args.
enum class Field : std::uint8_t {
    none,
    phase,
    category,
    name,
    process,
    thread,
    begin,
    duration,
    arguments
};
enum class Argument : std::uint8_t {
    none,
    correlation,
    external_id,
    bytes,
    stream,
    input_dims,
    input_type,
    collective,
    dtype,
    elements,
    elements_out,
    group,
    group_size,
    grid
};

Field field_of(std::string_view key) {
    return key == "ph"     ? Field::phase
           : key == "cat"  ? Field::category
           : key == "name" ? Field::name
           : key == "pid"  ? Field::process
           : key == "tid"  ? Field::thread
           : key == "ts"   ? Field::begin
           : key == "dur"  ? Field::duration
           : key == "args" ? Field::arguments
                           : Field::none;
}

Argument argument_of(std::string_view key) {
    constexpr std::array<std::pair<std::string_view, Argument>, 13> arguments{
        {{"external id", Argument::external_id},
         {"correlation", Argument::correlation},
         {"stream", Argument::stream},
         {"bytes", Argument::bytes},
         {"input dims", Argument::input_dims},
         {"input type", Argument::input_type},
         {"collective name", Argument::collective},
         {"dtype", Argument::dtype},
         {"in msg nelems", Argument::elements},
         {"out msg nelems", Argument::elements_out},
         {"process group name", Argument::group},
         {"group size", Argument::group_size},
         {"grid", Argument::grid}}};
    const auto* const found = std::ranges::find_if(arguments, [&](const auto& argument) {
        return std::ranges::equal(argument.first, key, {}, {}, lower_letter);
    });
    return found == arguments.end() ? Argument::none : found->second;
}

// The JSON library reads the trace a byte at a time. Once it has read an event, whole events are
// taken from before it, as long as they are such that both would read the same.
class TraceHandler : public nlohmann::json_sax<nlohmann::json> {
  public:
    TraceHandler(const ByteSource& source, const std::string& file)
        : buffer_(source, file, EventWindow::padding_bytes),
          window_(GuardedBuffer::window_bytes, deepest_in_window),
          builder_(file),
          trace_(builder_.head()) {}

    GuardedBuffer& buffer() { return buffer_; }

    bool null() override { return true; }
    bool boolean(bool /*value*/) override { return true; }
    bool number_integer(number_integer_t value) override {
        return number(static_cast<double>(value), value);
    }
    bool number_unsigned(number_unsigned_t value) override {
        constexpr std::uint64_t most = std::uint64_t{1} << 62;
        return number(static_cast<double>(value), static_cast<std::int64_t>(std::min(value, most)));
    }
    bool number_float(number_float_t value, const string_t& /*text*/) override {
        if (depth_ == 2 && top_key_ == "distributedInfo" && value != std::floor(value)) {
            throw InputError(trace_.file, "/distributedInfo/" + inner_key_, "a whole number",
                             fmt::format("{}", value));
        }
        return number(value, whole(value));
    }
    bool string(string_t& value) override {
        text(value);
        return true;
    }
    bool binary(binary_t& /*value*/) override { return true; }

    bool start_object(std::size_t /*size*/) override {
        open_object();
        return true;
    }
    bool key(string_t& value) override {
        name(value);
        return true;
    }
    bool end_object() override {
        close_object();
        if (in_events_ && depth_ + 1 == event_depth_) {
            take_whole_events();
        }
        return true;
    }
    bool start_array(std::size_t /*size*/) override {
        open_array();
        return true;
    }
    bool end_array() override {
        close_array();
        return true;
    }
    bool parse_error(std::size_t position, const std::string& /*token*/,
                     const nlohmann::detail::exception& error) override {
        const std::string_view what = error.what();
        const auto says = [&](const char* part) {
            return what.find(part) != std::string_view::npos;
        };
        // Within a text, a number or a word it says that these are wrong.
        const bool torn = says("unexpected end of input") ||
                          (says("invalid ") && buffer_.sgetc() == std::char_traits<char>::eof());
        const std::uint64_t byte = buffer_.skipped_bytes() + position;
        throw InputError(
            trace_.file, "", "a JSON trace",
            torn ? fmt::format("one that ends within byte {}, as if it was cut off", byte)
                 : fmt::format("something else at byte {}", byte));
    }

    ProfilerTrace take() {
        if (!is_trace_) {
            throw InputError(trace_.file, "", "a trace: an object with traceEvents, or a list",
                             "another value");
        }
        return builder_.take();
    }

  private:
    // Takes what lies ahead, window by window, until one holds no whole events, or something that
    // the JSON library has to look at.
    void take_whole_events() {
        while (buffer_.position() >= next_window_at_) {
            const std::optional<WindowEvents> whole = window_.read(buffer_.ahead());
            if (!whole) {
                next_window_at_ = buffer_.position() + GuardedBuffer::window_bytes;
                return;
            }
            for (const simdjson::dom::element event : whole->events) {
                take(event);
            }
            buffer_.skip(whole->bytes);
        }
    }

    void take(const simdjson::dom::element& value) {
        using simdjson::dom::element_type;
        switch (value.type()) {
            case element_type::OBJECT:
                open_object();
                for (const auto& [key, member] : simdjson::dom::object(value)) {
                    name(key);
                    take(member);
                }
                close_object();
                break;
            case element_type::ARRAY:
                open_array();
                for (const simdjson::dom::element item : simdjson::dom::array(value)) {
                    take(item);
                }
                close_array();
                break;
            case element_type::STRING:
                text(std::string_view(value));
                break;
            case element_type::INT64:
                take_integer(std::int64_t(value));
                break;
            case element_type::UINT64:
                number_unsigned(std::uint64_t(value));
                break;
            case element_type::DOUBLE:
                number(double(value), whole(double(value)));
                break;
            case element_type::BOOL:
            case element_type::NULL_VALUE:
                break;
        }
    }

    // As the JSON library, which takes all that are not negative for unsigned.
    void take_integer(std::int64_t value) {
        if (value < 0) {
            number_integer(value);
        } else {
            number_unsigned(static_cast<std::uint64_t>(value));
        }
    }

    void open_object() {
        open();
        if (depth_ == 1) {
            is_trace_ = true;
        }
        if (in_event()) {
            static const KinetoEvent nothing;
            raw_ = nothing;  // keeps the room of its texts
            list_elements_ = -1;
            in_args_ = false;
        } else if (in_events_ && depth_ == event_depth_ + 1) {
            in_args_ = field_ == Field::arguments;
        }
    }

    void close_object() {
        if (in_event()) {
            finish_event();
        } else if (in_events_ && depth_ == event_depth_ + 1) {
            in_args_ = false;
        }
        --depth_;
    }

    void open_array() {
        open();
        if (depth_ == 1 || (depth_ == 2 && top_key_ == "traceEvents")) {
            in_events_ = true;
            is_trace_ = true;
            event_depth_ = depth_ + 1;
        } else if (in_dims()) {
            shape_ = depth_ >= event_depth_ + 3 && raw_.event.elements < 0 ? 1 : -1;
        }
    }

    void close_array() {
        if (in_dims() && raw_.event.elements < 0) {
            close_shape();
        }
        if (in_events_ && depth_ + 1 == event_depth_) {
            in_events_ = false;
        }
        --depth_;
    }

    // Of a list of tensors it is one of several, which count together.
    void close_shape() {
        constexpr std::int64_t most = std::int64_t{1} << 40;
        if (depth_ == event_depth_ + 4 && shape_ >= 0) {
            list_elements_ = std::min(std::max<std::int64_t>(list_elements_, 0) + shape_, most);
        } else if (depth_ == event_depth_ + 3) {
            raw_.event.elements = list_elements_ >= 0 ? list_elements_ : shape_;
        }
    }

    void name(std::string_view key) {
        if (in_event()) {
            field_ = field_of(key);
        } else if (in_argument()) {
            argument_ = argument_of(key);
        } else if (depth_ == 1) {
            top_key_ = key;
        } else if (!in_events_) {
            inner_key_ = key;
        }
    }

    void text(std::string_view value) {
        if (in_event()) {
            event_text(value);
        } else if (in_argument()) {
            argument_text(value);
        } else if (in_events_ && in_args_ && depth_ == event_depth_ + 2 &&
                   argument_ == Argument::input_type && raw_.type.empty()) {
            raw_.type = value;
        } else if (depth_ == 2 && top_key_ == "distributedInfo") {
            if (inner_key_ == "backend") {
                trace_.backend = value;
            } else if (inner_key_ == "nccl_version") {
                trace_.nccl_version = value;
            }
        } else if (depth_ == 3 && top_key_ == "deviceProperties" && inner_key_ == "name" &&
                   trace_.device.empty()) {
            trace_.device = value;
        }
    }

    void open() {
        if (++depth_ > deepest) {
            throw InputError(trace_.file, "", fmt::format("nesting of at most {}", deepest),
                             "a deeper one");
        }
    }

    // Directly in an event's object.
    [[nodiscard]] bool in_event() const { return in_events_ && depth_ == event_depth_; }
    [[nodiscard]] bool in_argument() const {
        return in_events_ && in_args_ && depth_ == event_depth_ + 1;
    }
    [[nodiscard]] bool in_dims() const {
        return in_events_ && in_args_ && depth_ >= event_depth_ + 2 &&
               argument_ == Argument::input_dims;
    }

    [[nodiscard]] bool in_grid() const {
        return in_events_ && in_args_ && depth_ == event_depth_ + 2 && argument_ == Argument::grid;
    }
    // The blocks of a grid, dimension by dimension; a product of more than a grid has is none.
    static std::int32_t blocks_with(std::int32_t blocks, std::int64_t dimension) {
        constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
        const std::int64_t so_far = std::max<std::int64_t>(blocks, 1);
        return dimension >= 1 && dimension <= most / so_far
                   ? static_cast<std::int32_t>(so_far * dimension)
                   : std::int32_t{-1};
    }

    static std::int64_t whole(double value) {
        constexpr double most = 4e18;
        return std::abs(value) < most ? static_cast<std::int64_t>(value) : -1;
    }

    // True, as all that the parser calls says: go on.
    bool number(double value, std::int64_t integer) {
        if (in_event()) {
            event_number(value, integer);
        } else if (in_argument()) {
            argument_number(integer);
        } else if (in_dims()) {
            constexpr std::int64_t most = std::int64_t{1} << 40;
            const bool fits = shape_ >= 0 && shape_ <= most && integer >= 0 && integer <= most;
            if (raw_.event.rows < 0 && raw_.event.elements < 0 && depth_ == event_depth_ + 3 &&
                integer <= std::numeric_limits<std::int32_t>::max()) {
                raw_.event.rows = static_cast<std::int32_t>(integer);
            }
            shape_ =
                fits && shape_ <= most / std::max<std::int64_t>(integer, 1) ? shape_ * integer : -1;
        } else if (in_grid()) {
            raw_.event.blocks = blocks_with(raw_.event.blocks, integer);
        } else if (depth_ == 2 && top_key_ == "distributedInfo") {
            if (inner_key_ == "rank") {
                trace_.rank = integer;
            } else if (inner_key_ == "world_size") {
                trace_.world_size = integer;
            }
        }
        return true;
    }

    void event_number(double value, std::int64_t integer) {
        if (field_ == Field::begin) {
            raw_.begin_us = value;
            raw_.has_time = true;
        } else if (field_ == Field::duration) {
            raw_.duration_us = value;
        } else if (field_ == Field::process || field_ == Field::thread) {
            event_text(fmt::format_int(integer).c_str());
        }
    }

    void argument_number(std::int64_t integer) {
        switch (argument_) {
            case Argument::correlation:
                raw_.event.correlation = integer;
                break;
            case Argument::external_id:
                raw_.event.external_id = integer;
                break;
            case Argument::bytes:
                raw_.event.bytes = integer;
                break;
            case Argument::elements:
                raw_.call.elements = integer;
                raw_.has_call = true;
                break;
            case Argument::elements_out:
                raw_.elements_out = integer;
                break;
            case Argument::group_size:
                raw_.call.group_size = integer;
                break;
            case Argument::stream:
                raw_.stream = fmt::format_int(integer).c_str();
                break;
            default:
                break;
        }
    }

    void event_text(std::string_view value) {
        std::string* const text = field_ == Field::phase      ? &raw_.phase
                                  : field_ == Field::category ? &raw_.category
                                  : field_ == Field::name     ? &raw_.name
                                  : field_ == Field::process  ? &raw_.process
                                  : field_ == Field::thread   ? &raw_.thread
                                                              : nullptr;
        if (text != nullptr) {
            *text = value;
        }
    }

    void argument_text(std::string_view value) {
        switch (argument_) {
            case Argument::collective:
                raw_.call.name = value;
                raw_.has_call = true;
                break;
            case Argument::dtype:
                raw_.call.dtype = value;
                break;
            case Argument::group:
                raw_.call.group = value;
                break;
            case Argument::input_dims:
                raw_.event.elements = elements_in_text(value);
                break;
            case Argument::external_id:
            case Argument::correlation:
            case Argument::stream: {
                std::int64_t integer = -1;
                std::from_chars(value.data(), value.data() + value.size(), integer);
                argument_number(integer);
                break;
            }
            default:
                break;
        }
    }

    void finish_event() {
        const std::int64_t place = trace_.events_read++;
        if (raw_.phase != "X" || !raw_.has_time) {
            return;
        }
        // A list without shapes, as Kineto writes long ones, is no tensor of one element.
        if (raw_.type == "TensorList" && list_elements_ < 0) {
            raw_.event.elements = -1;
        }
        if (raw_.call.elements < 0 && raw_.elements_out >= 0) {
            raw_.call.elements = raw_.elements_out;
            raw_.has_call = true;
        }
        // Without Kineto, PyTorch writes its profile with no categories.
        builder_.add(raw_.category.empty() && raw_.process == "CPU functions"
                         ? Category::operation
                         : category_of(lower(raw_.category)),
                     raw_, place);
    }

    GuardedBuffer buffer_;
    EventWindow window_;
    std::uint64_t next_window_at_ = 0;  // bytes from the begin
    TraceBuilder builder_;
    TraceHead& trace_;
    std::size_t depth_ = 0;
    std::size_t event_depth_ = 0;
    bool in_events_ = false;
    bool in_args_ = false;
    bool is_trace_ = false;
    std::string top_key_;
    std::string inner_key_;
    Field field_ = Field::none;
    Argument argument_ = Argument::none;
    KinetoEvent raw_;
    std::int64_t shape_ = -1;
    std::int64_t list_elements_ = -1;  // of the shapes of a list, so far; -1: there was none
};

}  // namespace

ProfilerTrace read_kineto_trace(const ByteSource& source, const std::string& file) {
    TraceHandler handler(source, file);
    std::istream stream(&handler.buffer());
    nlohmann::json::sax_parse(stream, &handler);
    return handler.take();
}

}  // namespace bucketwise
