# Rules of `cmake --install`: the program with its manual page, completions, scenarios, plots and guides, and the
# simulator as a library for find_package(bucketwise). A wheel (pyproject.toml) contains only the component `program`.
include(CMakePackageConfigHelpers)

# In a wheel the prefix is the Python package, and what a system looks for in its own folders goes into those of the
# environment that the wheel is installed into.
set(bucketwise_mandir ${CMAKE_INSTALL_MANDIR})
set(bucketwise_datadir ${CMAKE_INSTALL_DATADIR})
if(SKBUILD)
    set(bucketwise_mandir ${SKBUILD_DATA_DIR}/share/man)
    set(bucketwise_datadir ${SKBUILD_DATA_DIR}/share)
    # NCCL and cuBLAS are opened at run time. The same environment may have them, as packages. The loader looks there
    # first, as it does for PyTorch, which has the same path and so the same libraries. As RPATH, not RUNPATH, which
    # would come after LD_LIBRARY_PATH: so PyTorch does it.
    target_link_options(bucketwise PRIVATE -Wl,--disable-new-dtags)
    set_target_properties(bucketwise PROPERTIES INSTALL_RPATH
        "$ORIGIN/../../nvidia/nccl/lib;$ORIGIN/../../nvidia/cu13/lib;$ORIGIN/../../nvidia/cublas/lib")
endif()

# --- the program ----------------------------------------------------------------------------------

install(TARGETS bucketwise RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(DIRECTORY scenarios plots DESTINATION ${CMAKE_INSTALL_DATADIR}/bucketwise COMPONENT program
        PATTERN __pycache__ EXCLUDE)
install(FILES import/flight_recorder/pickle_to_json.py COMPONENT program
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bucketwise/import/flight_recorder)
install(FILES import/settings/settings_to_json.py COMPONENT program
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bucketwise/import/settings)
install(FILES python/bucketwise/prove.py COMPONENT program
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bucketwise/python/bucketwise)
install(FILES python/bucketwise/torch/describe.py python/bucketwise/torch/_hugging_face.py
              python/bucketwise/torch/_listed_model.py python/bucketwise/torch/_operations.py COMPONENT program
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bucketwise/python/bucketwise/torch)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Printed by the program itself, so that they say what it can.
set(bucketwise_printed ${PROJECT_BINARY_DIR}/printed)
set(bucketwise_printed_files)
function(bucketwise_print file folder)
    add_custom_command(OUTPUT ${bucketwise_printed}/${file}
        COMMAND bucketwise ${ARGN} > ${bucketwise_printed}/${file}
        DEPENDS bucketwise VERBATIM)
    install(FILES ${bucketwise_printed}/${file} DESTINATION ${folder} COMPONENT program)
    list(APPEND bucketwise_printed_files ${bucketwise_printed}/${file})
    set(bucketwise_printed_files ${bucketwise_printed_files} PARENT_SCOPE)
endfunction()
file(MAKE_DIRECTORY ${bucketwise_printed})
bucketwise_print(bucketwise.1 ${bucketwise_mandir}/man1 man)
bucketwise_print(bucketwise ${bucketwise_datadir}/bash-completion/completions completion bash)
bucketwise_print(_bucketwise ${bucketwise_datadir}/zsh/site-functions completion zsh)
add_custom_target(bucketwise_printed ALL DEPENDS ${bucketwise_printed_files})

# --- the simulator ----------------------------------------------------------------------------------

# Headers are included as "sim/...", from the folder that a target of the package names.
install(DIRECTORY sim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bucketwise FILES_MATCHING PATTERN "*.h")
set_target_properties(bucketwise_sim PROPERTIES EXPORT_NAME sim)
set_target_properties(bucketwise_options PROPERTIES EXPORT_NAME options)
install(TARGETS bucketwise_sim bucketwise_options EXPORT bucketwiseTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(bucketwise_package ${CMAKE_INSTALL_LIBDIR}/cmake/bucketwise)
install(EXPORT bucketwiseTargets NAMESPACE bucketwise:: DESTINATION ${bucketwise_package})
configure_package_config_file(cmake/bucketwiseConfig.cmake.in ${PROJECT_BINARY_DIR}/bucketwiseConfig.cmake
                              INSTALL_DESTINATION ${bucketwise_package})
# Before 1.0 any version may change what the headers declare.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/bucketwiseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bucketwiseConfig.cmake ${PROJECT_BINARY_DIR}/bucketwiseConfigVersion.cmake
        DESTINATION ${bucketwise_package})
