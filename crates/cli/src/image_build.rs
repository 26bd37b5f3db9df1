//! Builds the images of services with `build` on the local engine, with `docker build`.
//!
//! Owns: which images are built, and the arguments of `docker build`. Must not touch: how an image is built.
//! Invariant: an existing image is kept unless a rebuild is asked for; the output of the builder is shown unchanged.

use std::{
    io,
    path::Path,
    process::{Command, Stdio},
};

use longshore_compose::{BuildSpec, Loaded};

use crate::output::print;

/// Which images are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rebuild {
    IfMissing,
    Always,
}

/// Builds the images of a manifest; the error is a message to print.
pub(crate) fn build_images(loaded: &Loaded, engine: &Path, rebuild: Rebuild) -> Result<(), String> {
    for (service, recipe) in &loaded.builds {
        let Some(spec) = loaded.spec.services.get(service) else { continue };
        let image = &spec.container.image;
        let not_started = |error: &io::Error| {
            format!(
                "error: `docker` is needed to build the image of service `{service}`, and could not be started: {error}\n\n\
                 hint: install the Docker command line, or build `{image}` elsewhere and leave `build` out"
            )
        };
        if rebuild == Rebuild::IfMissing && image_exists(engine, image).map_err(|error| not_started(&error))? {
            continue;
        }
        if !recipe.unused.is_empty() {
            print::stderr(&format!("warning: ignored when building `{image}`: {}", recipe.unused.join(", ")));
        }
        print::stderr(&format!("building {image} from {}", recipe.context));
        let built =
            docker(engine).args(build_arguments(image, recipe)).status().map_err(|error| not_started(&error))?;
        if !built.success() {
            return Err(format!(
                "error: the image `{image}` of service `{service}` could not be built: `docker build` ended with {built}\n\n\
                 hint: its output is above; `docker build {}` shows it again",
                recipe.context
            ));
        }
    }
    Ok(())
}

/// What `apply` does with services that have `build`: it builds nothing.
pub(crate) fn not_built(loaded: &Loaded, nodes: usize) -> Vec<String> {
    let images = loaded.builds.keys().filter_map(|service| Some((service, loaded.spec.services.get(service)?)));
    let warnings = images.map(|(service, spec)| {
        let image = &spec.container.image;
        if nodes > 1 {
            format!(
                "warning: service `{service}` has `build` and is not built by `apply`: every node pulls `{image}`; push it \
                 to a registry that the nodes reach, and name it with `image`"
            )
        } else {
            format!(
                "note: service `{service}` has `build` and is not built by `apply`: it runs `{image}` as the node has it, or \
                 waits for it; `longshore up --build` builds it"
            )
        }
    });
    warnings.collect()
}

fn docker(engine: &Path) -> Command {
    let mut command = Command::new("docker");
    command.arg("--host").arg(format!("unix://{}", engine.display())).stdin(Stdio::null());
    command
}

fn image_exists(engine: &Path, image: &str) -> io::Result<bool> {
    let inspected =
        docker(engine).args(["image", "inspect", image]).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    Ok(inspected.success())
}

fn build_arguments(image: &str, recipe: &BuildSpec) -> Vec<String> {
    let mut arguments = vec!["build".to_owned(), "--tag".to_owned(), image.to_owned()];
    let mut option = |name: &str, value: String| arguments.push(format!("--{name}={value}"));
    if let Some(dockerfile) = &recipe.dockerfile {
        let local = !recipe.context.contains("://") && !recipe.context.starts_with("git@");
        // `docker build` resolves it against the working directory, a manifest against the context.
        let path = if local { Path::new(&recipe.context).join(dockerfile) } else { dockerfile.into() };
        option("file", path.display().to_string());
    }
    for (name, value) in [("target", &recipe.target), ("network", &recipe.network)] {
        if let Some(value) = value {
            option(name, value.clone());
        }
    }
    let pair = |(name, value): (&String, &Option<String>)| match value {
        Some(value) => format!("{name}={value}"),
        None => name.clone(),
    };
    recipe.args.iter().for_each(|arg| option("build-arg", pair(arg)));
    recipe.labels.iter().for_each(|label| option("label", pair(label)));
    recipe.cache_from.iter().for_each(|image| option("cache-from", image.clone()));
    recipe.extra_hosts.iter().for_each(|host| option("add-host", host.replacen('=', ":", 1)));
    arguments.extend(recipe.no_cache.then(|| "--no-cache".to_owned()));
    arguments.extend(recipe.pull.then(|| "--pull".to_owned()));
    arguments.extend(["--".to_owned(), recipe.context.clone()]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_arguments_follow_the_manifest() {
        let recipe = BuildSpec {
            context: "/src/web".to_owned(),
            dockerfile: Some("prod/Dockerfile".to_owned()),
            target: Some("run".to_owned()),
            args: [("A".to_owned(), Some("1".to_owned())), ("FROM_HERE".to_owned(), None)].into(),
            extra_hosts: vec!["db=10.0.0.1".to_owned()],
            no_cache: true,
            ..BuildSpec::default()
        };
        let arguments = build_arguments("shop-web", &recipe).join(" ");
        assert_eq!(
            arguments,
            "build --tag shop-web --file=/src/web/prod/Dockerfile --target=run --build-arg=A=1 --build-arg=FROM_HERE \
             --add-host=db:10.0.0.1 --no-cache -- /src/web"
        );
    }
}
