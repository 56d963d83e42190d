#include "sim/scenario/listed_model_input.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

namespace bucketwise {
namespace {

// Generous for anything that exists; sums over a model stay far below 2^63.
constexpr std::size_t most_listed = 100'000;
constexpr std::int64_t most_moved = std::int64_t{1} << 40;  // elements, of one operation
constexpr std::int64_t most_flops = std::int64_t{1} << 54;
constexpr std::int64_t most_in_all = std::int64_t{1} << 60;
constexpr std::int64_t most_extent = std::int64_t{1} << 31;
constexpr std::size_t most_extents = 16;
constexpr std::int64_t most_kernels = 10'000;

// One pass as the file has it.
struct ListedPass {
    Work work;
    EagerPass eager;
};

constexpr std::array multiplying{OperationKind::linear, OperationKind::convolution,
                                 OperationKind::scores, OperationKind::weighted_sum,
                                 OperationKind::masked_sum};

struct ListedOperation {
    Operation operation;
    ListedPass forward;
    ListedPass input_gradient;
    ListedPass weight_gradient;
    std::vector<std::string> parameters;
};

JsonType<std::int64_t> elements() {
    return as::integer(0, most_moved);
}

const JsonTable<ListedPass>& pass_keys() {
    static const auto work = [](auto member, const auto& type) {
        return target_in<ListedPass>(
            [member](ListedPass & pass) -> auto& { return pass.work.*member; }, type);
    };
    static const JsonTable<ListedPass> table{
        "pass of a listed operation",
        "Work of one pass over the whole local batch",
        {{"flops", work(&Work::flops, as::integer(0, most_flops)), "0",
          "of its matrix product, a multiply-add as 2"},
         {"elements", work(&Work::elements, elements()), "0",
          "tensor elements that it reads and writes, of the arithmetic's size, by one kernel"},
         {"kernels",
          {as::integer(0, most_kernels)},
          "1",
          "that an eager framework launches for it"},
         {"further_elements",
          {elements()},
          "0",
          "that these kernels read and write beside `elements`"}}};
    return table;
}

ListedPass read_listed_pass(const JsonPlace& place) {
    const JsonObject object = pass_keys().open(place);
    ListedPass pass;
    pass_keys().read(object, pass);
    use_present(object, "kernels", [&](const JsonPlace& found) {
        pass.eager.kernels = static_cast<std::int32_t>(read_integer(found, 0, most_kernels));
    });
    object.read_optional("further_elements", pass.eager.elements, elements().read);
    return pass;
}

const JsonTable<MatrixProduct>& product_keys() {
    static const JsonTable<MatrixProduct> table{
        "matrix product",
        "C[m, n] += A[m, k] B[k, n]",
        {{"m", target(&MatrixProduct::m, as::integer(1, most_extent)), "required", "rows"},
         {"n", target(&MatrixProduct::n, as::integer(1, most_extent)), "required", "columns"},
         {"k", target(&MatrixProduct::k, as::integer(1, most_extent)), "required", "depth"},
         {"count", target(&MatrixProduct::count, as::integer(1, most_extent)), "1",
          "products of this shape"}}};
    return table;
}

JsonType<ListedPass> pass_type() {
    return {{reference_to(pass_keys().text()), "object", {&pass_keys().text()}}, read_listed_pass};
}

JsonType<std::optional<MatrixProduct>> product_type() {
    return {{reference_to(product_keys().text()), "object", {&product_keys().text()}},
            [](const JsonPlace& place) { return std::optional(product_keys().read(place)); }};
}

const JsonTable<ListedOperation>& listed_operation_keys() {
    using Listed = ListedOperation;
    static const auto in = [](auto member, const auto& type) {
        return target_in<Listed>(
            [member](Listed & listed) -> auto& { return listed.operation.*member; }, type);
    };
    static const JsonTable<Listed> table{
        "listed operation of a model",
        "One operation: a call of the framework's",
        {{"name", in(&Operation::name, as::text()), "required", "the module's, and what it does"},
         {"kind", in(&Operation::kind, as::one_of<OperationKind>()), "`pass`",
          "`linear`, `convolution`; attention's `scores`, `scores_pass` and `weighted_sum` or, "
          "where causal, `masked_sum`, which a fused kernel replaces; or over memory: "
          "`normalisation`, `stream` (a sum or loss that autocast leaves in float32), `gate` (an "
          "activation of which only the multiplication by the next product reads the result), "
          "`pass`"},
         {"forward", target(&Listed::forward, pass_type()), "required", "the pass forward"},
         {"input_gradient", target(&Listed::input_gradient, pass_type()), "none",
          "backward, towards the operation's input"},
         {"weight_gradient", target(&Listed::weight_gradient, pass_type()), "none",
          "backward, towards its parameters or second factor"},
         {"product", in(&Operation::product, product_type()), "none", "the matrix product in it"},
         {"operand_elements", in(&Operation::operand_elements, elements()),
          "`count` (m k + k n + m n)", "the product's two factors and its result"},
         {"kernel_area", in(&Operation::kernel_area, as::integer(1, most_extent)), "1",
          "of a convolution: taps per input channel"},
         {"parameters", target(&Listed::parameters, as::list(as::text(), most_listed)), "none",
          "names of those it uses, in the order autograd finishes their gradients. A gradient is "
          "ready when the first operation of forward that uses it has run backward"},
         {"batch_norm_channels", in(&Operation::batch_norm_channels, as::integer(0, most_extent)),
          "0", "of a BatchNorm, whose forward moves its elements three times"},
         {"upcasts", in(&Operation::upcasts, as::boolean()), "false",
          "a pass over memory that eager frameworks run in float32, casting 16-bit input first"},
         {"kept_elements", in(&Operation::kept_elements, elements()), "0",
          "kept for backward, in the arithmetic's type"},
         {"kept_bytes", in(&Operation::kept_bytes, as::integer(0, 8 * most_moved)), "0",
          "kept for backward in other types"}},
        {},
        {Json{{"if",
               {{"properties",
                 {{"kind", as::names_schema(transformed(
                               multiplying, [](OperationKind kind) { return name_of(kind); }))}}},
                {"required", {"kind"}}}},
              {"then", {{"required", {"product"}}}}}}};
    return table;
}

const JsonTable<Parameter>& parameter_keys() {
    static const JsonTable<Parameter> table{
        "listed parameter",
        "One parameter that is trained",
        {{"name", target(&Parameter::name, as::text()), "required", "no two alike"},
         {"shape", target(&Parameter::shape, as::list(as::integer(1, most_extent), most_extents)),
          "required", "extents, as PyTorch has them"}}};
    return table;
}

const JsonTable<Buffer>& listed_buffer_keys() {
    static const JsonTable<Buffer> table{
        "listed buffer",
        "One buffer that DDP broadcasts in forward",
        {{"name", target(&Buffer::name, as::text()), "required", "the buffer's"},
         {"numel", target(&Buffer::numel, as::integer(1, most_moved)), "required",
          "number of elements"},
         {"element_bytes",
          target(&Buffer::element, JsonType<Bytes>{as::integer(1, 16),
                                                   [](const JsonPlace& place) {
                                                       return Bytes{read_integer(place, 1, 16)};
                                                   }}),
          "4", "size of one"}}};
    return table;
}

const JsonTable<ListedModel>& listed_model_keys() {
    static const auto in = [](auto member, const auto& type) {
        return target_in<ListedModel>(
            [member](ListedModel & listed) -> auto& { return listed.model.*member; }, type);
    };
    static const JsonTable<ListedModel> table{
        "listed model",
        "A model's parameters and operations one by one, as `python -m bucketwise.torch.describe` "
        "writes them",
        {{"batch", target(&ListedModel::batch, as::integer(1, most_tokens)), "required",
          "samples that the operations are of; the workload's `batch` is the same"},
         {"sequence_length", target(&ListedModel::sequence_length, as::integer(1, most_sequence)),
          "none", "tokens that the operations are of, if any; the workload's is the same"},
         {"parameters", in(&Model::parameters, as::list(parameter_keys().type(), most_listed)),
          "required",
          "all that are trained, in the order of `named_parameters()`, shared ones once. Those "
          "that no "
          "operation uses are ready when backward begins"},
         {"operations", as::list(listed_operation_keys().type(), most_listed), "required",
          "in the order forward runs them; backward runs them the other way"},
         {"buffers", in(&Model::buffers, as::list(listed_buffer_keys().type(), most_listed)),
          "none", "what DDP broadcasts in forward (BatchNorm's running statistics)"},
         {"frozen_elements", in(&Model::frozen_elements, elements()), "0",
          "of parameters that are not trained: they take memory and have no gradients"}}};
    return table;
}

using ParameterIndices = std::map<std::string, std::int32_t, std::less<>>;

ParameterIndices indices_of(const JsonPlace& place, const std::vector<Parameter>& parameters) {
    ParameterIndices indices;
    std::int64_t all = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const JsonPlace parameter{&place.value->at(i), place.file,
                                  fmt::format("{}/{}", place.pointer, i)};
        if (!indices.emplace(parameters[i].name, static_cast<std::int32_t>(i)).second) {
            parameter.fail("a name that no other parameter has", parameters[i].name);
        }
        std::int64_t product = 1;
        for (const std::int64_t extent : parameters[i].shape) {
            product = extent > most_moved / product ? most_moved + 1 : product * extent;
        }
        all += product;
        if (product > most_moved || all > most_moved) {
            parameter.fail(fmt::format("a shape of at most {} elements, of all parameters together",
                                       most_moved));
        }
    }
    return indices;
}

// Sums of a model stay in 64 bits.
void add_to_sum(const JsonPlace& place, const Operation& operation, std::int64_t& sum) {
    for (const Pass pass : {Pass::forward, Pass::input_gradient, Pass::weight_gradient}) {
        const Work work = work_of(operation, pass);
        sum += work.flops + work.elements;
    }
    sum += 8 * operation.kept_elements + operation.kept_bytes;
    if (sum > most_in_all) {
        place.fail(
            fmt::format("operations of at most {} flops and elements together", most_in_all));
    }
}

std::int64_t operands_of(const MatrixProduct& product, const JsonPlace& place) {
    const auto [m, n, k] =
        std::array{static_cast<double>(product.m), static_cast<double>(product.n),
                   static_cast<double>(product.k)};
    const double all = static_cast<double>(product.count) * (m * k + k * n + m * n);
    if (all > static_cast<double>(most_moved)) {
        place.fail(fmt::format("operands of at most {} elements together", most_moved));
    }
    return static_cast<std::int64_t>(all);
}

Operation read_listed_operation(const JsonPlace& place, const ParameterIndices& indices,
                                std::vector<bool>& used) {
    const JsonObject object = listed_operation_keys().open(place);
    ListedOperation listed;
    listed_operation_keys().read(object, listed);
    Operation& operation = listed.operation;
    operation.forward = listed.forward.work;
    operation.input_gradient = listed.input_gradient.work;
    operation.weight_gradient = listed.weight_gradient.work;
    operation.eager = {listed.forward.eager, listed.input_gradient.eager,
                       listed.weight_gradient.eager};
    if (std::ranges::count(multiplying, operation.kind) > 0 && !operation.product) {
        throw InputError(place.file, place.pointer,
                         fmt::format("the key product beside kind {}", name_of(operation.kind)),
                         "none");
    }
    if (operation.product) {
        const std::int64_t operands = operands_of(*operation.product, object.at("product"));
        operation.operand_elements =
            object.has("operand_elements") ? operation.operand_elements : operands;
    }
    for (std::size_t i = 0; i < listed.parameters.size(); ++i) {
        const auto found = indices.find(listed.parameters[i]);
        if (found == indices.end()) {
            const JsonPlace list = object.at("parameters");
            JsonPlace{&list.value->at(i), list.file, fmt::format("{}/{}", list.pointer, i)}.fail(
                "the name of a parameter", listed.parameters[i]);
        }
        operation.parameters.push_back(found->second);
        used[static_cast<std::size_t>(found->second)] = true;
    }
    return operation;
}

}  // namespace

ListedModel read_listed_model(const JsonPlace& place) {
    const JsonObject object = listed_model_keys().open(place);
    ListedModel listed;
    listed_model_keys().read(object, listed);
    Model& model = listed.model;
    model.name = "listed";
    const JsonPlace parameters = object.at("parameters");
    const ParameterIndices indices = indices_of(parameters, model.parameters);
    std::vector<bool> used(model.parameters.size());
    std::int64_t sum = 0;
    for (const JsonPlace& element : read_array(object.at("operations"), most_listed)) {
        model.operations.push_back(read_listed_operation(element, indices, used));
        add_to_sum(element, model.operations.back(), sum);
    }
    // Their gradients are ready at once, as DDP takes those of unused parameters.
    std::vector<std::int32_t>& of_last = model.operations.back().parameters;
    for (std::size_t i = used.size(); i-- > 0;) {
        if (!used[i]) {
            of_last.insert(of_last.begin(), static_cast<std::int32_t>(i));
        }
    }
    return listed;
}

const ObjectText& listed_model_text() {
    return listed_model_keys().text();
}

}  // namespace bucketwise
